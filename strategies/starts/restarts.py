"""Restarts: several attempts with other initial models, of which the best is continued (CLoVE and IFCA)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import LOSS_FACTOR
from florets.strategies.settings import Experiment, Weighted
from florets.strategies.shared.estimates import without_outliers
from florets.task.keys import setting
from florets.task.randomness import Purpose

_NAME = "restarts"
"""Key of the attempts in the state."""


@dataclass(frozen=True)
class Restarted(Weighted):
    """Keys of an algorithm whose outcome depends on its random initial models."""

    restarts: int = setting(
        1,
        "number of attempts with other initial models; the one with the lowest mean loss is continued",
        least=1,
    )
    restart_rounds: int = setting(
        5,
        "rounds of each attempt; those of the continued one count towards num_rounds",
        least=1,
        needs="strategy.restarts>1",
    )

    @property
    def rounds_before(self) -> int:
        """Rounds of the attempts that are not continued."""
        return (self.restarts - 1) * self.restart_rounds

    def problems(self, run: Experiment) -> list[str]:
        """Refuse restarts without rounds after them, and attempts all alike or with different numbers of models."""
        if self.restarts < 2:
            return []
        problems = []
        if run.num_rounds <= self.restart_rounds:
            problems.append(
                f"strategy.restarts={self.restarts}: each attempt has strategy.restart_rounds={self.restart_rounds} "
                f"rounds, and the best one needs num_rounds={run.num_rounds} to be more; raise num_rounds, or lower "
                "strategy.restart_rounds."
            )
        if run.k == "auto":
            problems.append("k=auto: attempts with different numbers of models cannot be compared; give an integer.")
        if run.first_round == "update":
            problems.append(
                f"strategy.restarts={self.restarts}: first_round=update starts from one model, and hardly depends on "
                "which; leave one of them out."
            )
        return problems


def shuffled(bank: FloatArray, layers: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return other random models, drawn as these were: each layer's entries are permuted, in all models alike.

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
class Attempts:
    """What is remembered of the attempts.

    Attributes
    ----------
    initial
        The first attempt's initial models; None where there is a single attempt, or all have ended.
    state, models
        Where the best attempt so far ended; None before the first has ended, and once the best one is continued.
    scores
        Score of each attempt that has ended; larger is better. The second number breaks ties.
    """

    initial: Models | None = None
    state: Any = None
    models: Models | None = None
    scores: list[tuple[float, float]] = field(default_factory=list)


def restarted(strategy: Any, r: Round) -> bool:
    """Begin a round; return whether it is the first one of an attempt, of a strategy with the keys of `Restarted`.

    The attempt that has ended is judged by the losses of this round's participants on its models (one exchange). Then
    the next one begins, with a new state and other models, or the best one is continued as if it were the only one.

    Source: Ghosh et al. 2020 (IFCA), section 6, restarts.
    Deviation: there an attempt is kept once it is good enough, or the best one by the true models; here the number of
    attempts is given, and the truth is not known.
    """
    settings = strategy.settings
    if not isinstance(settings, Restarted) or settings.restarts == 1:
        return isinstance(settings, Restarted) and r.server_round == 1
    number, step = divmod(r.server_round - 1, settings.restart_rounds)
    is_first = step == 0 and number < settings.restarts
    if step != 0 or number > settings.restarts:
        return is_first
    if number == 0:
        strategy.state.layers[_NAME] = Attempts(r.models)
        return is_first
    attempts = _judged(strategy, r)
    details: dict[str, Detail] = {"start": float(len(attempts.scores)), "score": list(attempts.scores[-1])}
    if number < settings.restarts:
        strategy.state = strategy.State(layers={_NAME: attempts}, details=details)
        r.models = _other_models(attempts, r)
        return is_first
    assert attempts.models is not None
    strategy.state, r.models = attempts.state, attempts.models
    strategy.state.layers[_NAME] = Attempts(scores=attempts.scores)
    strategy.state.details = {**details, "kept": float(1 + max(range(number), key=attempts.scores.__getitem__))}
    return is_first


def _judged(strategy: Any, r: Round) -> Attempts:
    """Return the attempts with the score of the one that has just ended."""
    attempts: Attempts = strategy.state.layers[_NAME]
    settings = strategy.settings
    with r.meter.part("losses"):
        # A score is a mean: one client's losses must not decide it.
        asked = r.ask_losses(r.participants, r.models, all_samples=True)
        replies = without_outliers(asked, r, factor=getattr(settings, "outlier_loss", LOSS_FACTOR))
    r.require(replies, "loss vector")
    losses = np.stack([reply.losses for _, reply in replies.ok])
    score = -min(least_loss(losses), 1e300), least_share(losses)
    if not attempts.scores or score > max(attempts.scores):
        others = {name: kept for name, kept in strategy.state.layers.items() if name != _NAME}
        return Attempts(attempts.initial, replace(strategy.state, layers=others), r.models, [*attempts.scores, score])
    return replace(attempts, scores=[*attempts.scores, score])


def _other_models(attempts: Attempts, r: Round) -> Models:
    assert attempts.initial is not None
    bank, layers = attempts.initial.bank, attempts.initial.layout.layers
    return attempts.initial.replaced(shuffled(bank, layers, r.random(Purpose.INITIAL_MODEL)))
