"""Keys under the names that they had in the last release: read for one release more, with a hint."""

import logging
from collections.abc import Mapping
from typing import Any

from florets.conf.overrides import Given
from florets.conf.typed import show

log = logging.getLogger("florets")

_MOVED = {
    "strategy.averaging": "averaging",
    "strategy.gradient_batch": "gradient_batch",
    "strategy.server_learning_rate": "server_learning_rate",
    "strategy.server_optimizer": "server_optimizer",
    "strategy.first_round": "first_round",
    "strategy.choose_k": "choose_k",
    "strategy.normaliser": "strategy.weighting",
    "strategy.absurd_loss": "strategy.outlier_loss",
}
_WEIGHTINGS = {"group_n": "examples", "group": "uniform", "all": "all_participants"}


def renamed(given: Given, hint: bool = True) -> Given:
    """Return a key under its present name; of an old one a hint is logged."""
    if given.key not in _MOVED:
        return given
    key, value = _MOVED[given.key], _value(given.key, given.value)
    if hint:
        log.warning(
            "%s: the key is now %s=%s; the old name will go with the next release", given.text, key, show(value)
        )
    return Given(key, value, given.text)


def modernise(values: dict[str, Any], strategy: dict[str, Any]) -> None:
    """Move old keys within a strategy's settings to where they are now, in place; nothing given twice is changed.

    Parameters
    ----------
    values
        The whole configuration.
    strategy
        The strategy's settings in it: `values["strategy"]`, or those that a preset has for the chosen strategy.
    """
    for old, new in _MOVED.items():
        name = old.removeprefix("strategy.")
        if name not in strategy:
            continue
        value = _value(old, strategy.pop(name))
        if new.startswith("strategy."):
            strategy.setdefault(new.removeprefix("strategy."), value)
        elif value is not None:
            values.setdefault(new, value)


def _value(old: str, value: Any) -> Any:
    return _WEIGHTINGS.get(value, value) if old == "strategy.normaliser" and isinstance(value, str) else value


def old_names(strategy: Mapping[str, Any]) -> list[str]:
    """Return the old keys within a strategy's settings."""
    return [old for old in _MOVED if old.removeprefix("strategy.") in strategy]
