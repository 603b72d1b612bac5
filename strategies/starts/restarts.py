"""Several starts from random models, of which the best goes on: for CLoVE and IFCA."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import LOSS_FACTOR
from florets.strategies.settings import Experiment, Weighted, idle
from florets.strategies.shared.estimates import without_outliers
from florets.task.keys import setting
from florets.task.randomness import Purpose

_NAME = "restarts"
"""Under which the state has what is remembered of the starts."""


@dataclass(frozen=True)
class Restarted(Weighted):
    """Keys of an algorithm whose outcome depends on its random first models."""

    restarts: int = setting(
        1,
        "starts from other random models, of which that with the lowest mean of the clients' lowest losses is "
        "continued; 1: a single start",
        least=1,
    )
    restart_rounds: int = setting(
        5, "rounds of each start; those of the continued one count towards num_rounds", least=1
    )

    @property
    def first_rounds(self) -> int:
        """Rounds of the starts that do not go on."""
        return (self.restarts - 1) * self.restart_rounds

    def conflicts(self) -> list[str]:
        """Refuse settings of starts where there is one."""
        return idle(self, ["restart_rounds"], "strategy.restarts of 2 or more") * (self.restarts == 1)

    def problems(self, run: Experiment) -> list[str]:
        """Refuse starts that no round follows, and those that would all be alike or have other numbers of models."""
        if self.restarts < 2:
            return []
        problems = []
        if run.num_rounds <= self.restart_rounds:
            problems.append(
                f"strategy.restarts={self.restarts}: each start has strategy.restart_rounds={self.restart_rounds} "
                f"rounds, and the best one needs num_rounds={run.num_rounds} to be more; raise num_rounds, or lower "
                "strategy.restart_rounds."
            )
        if run.k == "auto":
            problems.append("k=auto: starts with different numbers of models cannot be compared; give an integer.")
        if run.first_round == "update":
            problems.append(
                f"strategy.restarts={self.restarts}: first_round=update starts from one model, and hardly depends on "
                "which; leave one of them out."
            )
        return problems


def shuffled(bank: FloatArray, layers: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return other random models, drawn as these were: the entries of each layer change places, in all models alike.

    Initial weights of a layer are independent draws from one distribution, and in another order they are another such
    draw. What holds between the models, that they are equal, or orthonormal, or equal in some layers, stays.

    `bank` (K, R) are initial models, not trained, `layers` (R,) the layer of each entry.
    """
    order = np.arange(bank.shape[1])
    for layer in np.unique(layers):
        entries = np.flatnonzero(layers == layer)
        order[entries] = rng.permutation(entries)
    return bank[:, order]


def least_loss(losses: FloatArray) -> float:
    """Return the mean over clients of their least loss (M, K); infinite where a client has no finite one."""
    return float(losses.min(axis=1).mean())


def least_share(losses: FloatArray) -> float:
    """Return the smallest fraction of the clients that a model has, where each takes the one with its lowest loss.

    Source: Ghosh et al. 2020 (IFCA), whose experiments begin anew until every model has such a fraction of clients.
    """
    return float(np.bincount(losses.argmin(axis=1), minlength=losses.shape[1]).min() / len(losses))


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


def restarted(strategy: Any, r: Round) -> bool:
    """Begin a round as its start sees it; return whether it is the first one of a start.

    The start that is over is judged by the losses of this round's participants on its models (one exchange). Then the
    next start begins, with a state of its own and other models, or the best one goes on as if it had been the only
    one.

    Source: Ghosh et al. 2020 (IFCA), section 6, restarts.
    Deviation: there a start is kept once it is good enough, or the best one by the true models; the number of starts
    is fixed here, and the truth is not known.
    """
    settings: Restarted = strategy.settings
    number, step = divmod(r.server_round - 1, settings.restart_rounds)
    is_first = r.server_round == 1 or (step == 0 and number < settings.restarts)
    if settings.restarts == 1 or step != 0 or number > settings.restarts:
        return is_first
    if number == 0:
        strategy.state.layers[_NAME] = Starts(r.models)
        return is_first
    starts = _judged(strategy, r)
    details: dict[str, Detail] = {"start": float(len(starts.scores)), "score": list(starts.scores[-1])}
    if number < settings.restarts:
        strategy.state = strategy.State(layers={_NAME: starts}, details=details)
        r.models = _other_models(starts, r)
        return is_first
    assert starts.models is not None
    strategy.state, r.models = starts.state, starts.models
    strategy.state.layers[_NAME] = Starts(scores=starts.scores)
    strategy.state.details = {**details, "kept": float(1 + max(range(number), key=starts.scores.__getitem__))}
    return is_first


def _judged(strategy: Any, r: Round) -> Starts:
    """Return the starts with the one that is over among them."""
    starts: Starts = strategy.state.layers[_NAME]
    settings = strategy.settings
    with r.meter.part("losses"):
        # A score is a mean: one client's losses must not decide it.
        asked = r.ask_losses(r.participants, r.models, all_samples=True)
        replies = without_outliers(asked, r, factor=getattr(settings, "outlier_loss", LOSS_FACTOR))
    r.require(replies, "loss vector")
    losses = np.stack([reply.losses for _, reply in replies.ok])
    score = -min(least_loss(losses), 1e300), least_share(losses)
    if not starts.scores or score > max(starts.scores):
        others = {name: kept for name, kept in strategy.state.layers.items() if name != _NAME}
        return Starts(starts.initial, replace(strategy.state, layers=others), r.models, [*starts.scores, score])
    return replace(starts, scores=[*starts.scores, score])


def _other_models(starts: Starts, r: Round) -> Models:
    assert starts.initial is not None
    bank, layers = starts.initial.bank, starts.initial.layout.layers
    return starts.initial.replaced(shuffled(bank, layers, r.random(Purpose.INITIAL_MODEL)))
