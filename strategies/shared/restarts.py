"""Several starts from random models, of which the best goes on: for CLoVE and IFCA."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from florets.strategies.base.algorithm import Algorithm
from florets.strategies.base.context import Round
from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail
from florets.strategies.core.starts import least_loss, least_share, shuffled
from florets.strategies.shared.loss_outliers import without_outliers
from florets.strategies.shared.restart_settings import Restarted
from florets.strategies.shared.update_start import StartState
from florets.task.randomness import Purpose


@dataclass
class Starts:
    """What is remembered of the starts.

    Attributes
    ----------
    initial
        The first start's models, before training; None where there is one start alone, or they are all over.
    state, models
        What the best start so far came to; None before the first is over, and once the best one goes on.
    scores
        Of each start that is over; larger is better. The second number decides between equal first ones.
    """

    initial: Models | None = None
    state: Any = None
    models: Models | None = None
    scores: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class RestartState(StartState):
    """State of an algorithm that may be started several times.

    Attributes
    ----------
    starts
        What is remembered of the starts.
    is_first
        Whether this is the first round of a start.
    told
        What the round tells of starts.
    """

    starts: Starts = field(default_factory=Starts)
    is_first: bool = True
    told: dict[str, Detail] = field(default_factory=dict)


def begin_round(algorithm: Algorithm[Any, Any], context: Round) -> Round:
    """Return the round as its start sees it: in the first one after a start, with other models.

    The start that is over is judged by the losses of this round's participants on its models (one exchange). Then the
    next start begins, with a state of its own, or the best one goes on as if it had been the only one.

    Raises
    ------
    RoundFailed
        If fewer loss vectors than the quorum came back.

    Source: Ghosh et al. 2020 (IFCA), section 6, restarts.
    Deviation: there a start is kept once it is good enough, or the best one by the true models; the number of starts
    is fixed here, and the truth is not known.
    """
    settings: Restarted = algorithm.settings
    number, step = divmod(context.server_round - 1, settings.restart_rounds)
    state: RestartState = algorithm.state
    state.told = {}
    state.is_first = context.server_round == 1 or (step == 0 and number < settings.restarts)
    if settings.restarts == 1 or step != 0 or number > settings.restarts:
        return context
    if number == 0:
        state.starts.initial = context.models
        return context
    starts = _judged(algorithm, context)
    told: dict[str, Detail] = {"start": float(len(starts.scores)), "score": list(starts.scores[-1])}
    if number < settings.restarts:
        algorithm.state = algorithm.State(starts=starts, told=told)
        return replace(context, models=_other_models(starts, context))
    assert starts.models is not None
    algorithm.state = replace(starts.state, starts=Starts(scores=starts.scores), is_first=False)
    algorithm.state.told = {**told, "kept": float(1 + max(range(number), key=starts.scores.__getitem__))}
    return replace(context, models=starts.models)


def _judged(algorithm: Algorithm[Any, Any], context: Round) -> Starts:
    """Return the starts with the one that is over among them."""
    starts: Starts = algorithm.state.starts
    with context.meter.part("losses"):
        # A score is a mean: one client's losses must not decide it.
        asked = context.ask_losses(context.participants, context.models, all_samples=True)
        replies = without_outliers(asked, context)
    context.require(replies, "loss vector")
    losses = np.stack([reply.losses for _, reply in replies.ok])
    loss, share = -min(least_loss(losses), 1e300), least_share(losses)
    score = (loss, share) if algorithm.settings.keep_start == "loss" else (share, loss)
    if not starts.scores or score > max(starts.scores):
        kept = replace(algorithm.state, starts=Starts(), told={})
        return Starts(starts.initial, kept, context.models, [*starts.scores, score])
    return replace(starts, scores=[*starts.scores, score])


def _other_models(starts: Starts, context: Round) -> Models:
    assert starts.initial is not None
    bank, layers = starts.initial.bank, starts.initial.layout.layers
    return starts.initial.replaced(shuffled(bank, layers, context.random(Purpose.INITIAL_MODEL)))
