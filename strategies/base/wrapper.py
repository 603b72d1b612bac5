"""Refusal of Flower's strategy wrappers, such as those for differential privacy, around a clustered strategy."""

import sys
from types import FrameType

from flwr.serverapp.strategy import Strategy


def refuse_wrapper(strategy: Strategy) -> None:
    """Refuse to work for another strategy's hooks; call it where `strategy.start` is not what runs the rounds.

    A wrapper changes the one model that it expects in `configure_train`, `aggregate_train` and their messages. Here K
    models travel, the strategy also asks clients in exchanges that do not pass through the wrapper, and it keeps its
    own models, without the wrapper's noise: clipping would clip nothing, or something else, and nobody would be told.
    A wrapper holds its inner strategy, which has no reference to it, so it is looked for among the callers.

    Raises
    ------
    ValueError
        If a method of another strategy is among the callers.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        caller = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(caller, Strategy) and caller is not strategy:
            wrapper, inner = type(caller).__name__, type(strategy).__name__
            raise ValueError(
                f"{wrapper} around {inner}: a wrapper does not reach all that {inner} asks of its clients and keeps "
                f"of their replies, so it has no effect; call start of the {inner} itself, without {wrapper}. An "
                "averaging of your own goes into the strategy's plan, see docs/extending.md."
            )
        frame = frame.f_back
