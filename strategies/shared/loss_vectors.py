"""`LossVectors`: clients embedded by their losses of K models, with probes, outliers and a watch after the freeze."""

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import STABLE_FROM, Client, Detail
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import clipped, equal_for_all_models, loss_scale, outlier_losses, worst_losses
from florets.strategies.shared.restarts import Restarted, Restarts, RestartState
from florets.task.keys import setting
from florets.task.wire.replies import Losses, Update

PATIENCE = 2
"""Rounds running in which an outlier is rejected before it is clustered with its losses clipped."""
CLIP = 1.25
"""Bound to which losses are clipped, in worst losses of the median client.

Near enough that a lone liar does not take a cluster from groups that lie apart (1.5 lets it, on digits), and far
enough that a group in another unit stands apart before its models have learned anything.
"""

FAR = "rejected as an outlier: its losses are far above the others' (strategy.outlier_loss)"
EQUAL = f"{FAR} and equal for all models"


@dataclass(eq=False)
class Outliers:
    """Which clients are outliers, and since when.

    In one round a broken client and one whose data are in another unit (targets 20 times as large make squared errors
    400 times as large) look alike; over several they differ. A passing fault is over after `PATIENCE` rounds, and of
    the lasting ones most report the same loss for every model, which no data give and no clustering can use.

    So an outlier is rejected `PATIENCE` rounds running and then clustered, with all vectors of that round clipped:
    its own and those of clients just below the bound alike. A vector that is equal for all models stays rejected.
    Several clients that invent another vector in every round can do what false losses of an ordinary size do.

    Attributes
    ----------
    scale
        Largest `loss_scale` of the run so far.
    rejected
        By client: rounds running in which it was rejected.
    admitted
        Outliers that are clustered.
    """

    scale: float = 0.0
    rejected: dict[str, int] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)

    def measure(self, losses: Sequence[FloatArray]) -> float:
        """Take a round's loss vectors (K,) into the scale; return what they are clipped to where that is needed."""
        present = loss_scale(np.stack(losses)) if losses else 0.0
        self.scale = max(self.scale, present)
        return CLIP * (present or self.scale)

    def reject(self, reports: Sequence[tuple[str, FloatArray]], factor: float | None) -> dict[str, set[str]]:
        """Return the clients that are not to be clustered, by reason.

        `reports` are the key and loss vector (K,) of each client, infinite where a model diverged. An outlier's best
        loss is more than `factor` times the median client's worst; None rejects nobody.
        """
        # With one model there is nothing to cluster, and nobody to be kept from it.
        if factor is None or not reports or len(reports[0][1]) == 1:
            return {}
        keys, losses = [key for key, _ in reports], np.stack([vector for _, vector in reports])
        far, equal = self._far(keys, losses, factor), equal_for_all_models(losses)
        found: dict[str, set[str]] = {}
        for row, key in enumerate(keys):
            if not far[row]:
                self.rejected.pop(key, None)
                self.admitted.discard(key)
            elif equal[row] or (key not in self.admitted and self.rejected.get(key, 0) < PATIENCE):
                self.rejected[key] = self.rejected.get(key, 0) + 1
                found.setdefault(EQUAL if equal[row] else FAR, set()).add(key)
            else:
                self.rejected.pop(key, None)
                self.admitted.add(key)
        return found

    def limit(self, keys: Iterable[str], limit: float) -> float:
        """Return what the vectors of these clients are clipped to: infinity unless an outlier is among them."""
        return math.inf if self.admitted.isdisjoint(keys) else limit

    def _far(self, keys: Sequence[str], losses: FloatArray, factor: float) -> BoolArray:
        # Below the bound by a margin only: a client must not come and go while its models learn.
        inside = np.array([key in self.admitted for key in keys], dtype=bool)
        stays = inside & (worst_losses(losses) > math.sqrt(factor) * self.scale)
        mask: BoolArray = outlier_losses(losses, self.scale, factor) | stays
        return mask


WATCH = "watch"
"""The detail of a round in which clients departed from their clusters, or were asked again."""

LENGTH = 6
"""Rounds of a client, and of a cluster, that are its usual ones."""
LEAST = 3
"""Rounds that a client has trained its model before it is watched, and clients that tell a cluster's change."""
FLOOR = 0.05
"""Least spread of the logarithms of losses: below 5 % no change is meant."""
FITS = 1 / 3
"""Part of the rise of a client's loss that a model must take back to fit the client."""

_SMALLEST = 1e-12


@dataclass
class Departure:
    """A client whose loss has departed from its cluster's.

    Attributes
    ----------
    model
        Its cluster's, when it departed.
    expected
        Logarithm of the loss that it would have if nothing had changed.
    together
        Whether its whole cluster departed with it.
    due
        Rounds of its own until it is asked for a loss vector.
    asked
        How often it has been asked; in how many of the last times running no model fitted is `unfit`.
    """

    model: int
    expected: float
    together: bool
    due: int = 0
    asked: int = 0
    unfit: int = 0

    def answered(self, losses: FloatArray, model: int) -> None:
        """Note a loss vector (K,), and whether its best model fits; `model` is the one that the client has."""
        logs = np.log(np.clip(losses, _SMALLEST, None))
        rise = max(float(logs[model]) - self.expected, 0.0)
        self.unfit = self.unfit + 1 if float(logs.min()) > self.expected + (1 - FITS) * rise + FLOOR else 0
        self.asked += 1
        # 1, 2, 4, 8 rounds after it departed: what no model fits costs little.
        self.due = 2 ** max(self.asked - 1, 0)


@dataclass(eq=False)
class Watch:
    """What the training losses of frozen clusters' clients usually are, and who has departed from that.

    A client's change is the logarithm of its loss less the median of its last ones; its cluster's change is the
    median of its members'. What is left of a client's change without its cluster's is compared with what that usually
    comes to, by all clients' median absolute deviation. A cluster that as a whole changes unlike the others is no
    reference for its members: they are compared with the other clusters, and where most clients change as never
    before, with the usual change of all.

    Attributes
    ----------
    levels
        By client: logarithms of its last losses with its present model.
    excesses
        By client: its changes without its cluster's, of the same rounds.
    shifts
        By model: its cluster's last changes without the other clusters'.
    commons
        Last changes of all clients together.
    departed
        Clients whose loss has departed, until it is as before or they have moved.
    fresh
        Of these, the ones that departed in this round.
    details
        What the round's report says.
    """

    levels: dict[str, list[float]] = field(default_factory=dict)
    excesses: dict[str, list[float]] = field(default_factory=dict)
    shifts: dict[int, list[float]] = field(default_factory=dict)
    commons: list[float] = field(default_factory=list)
    departed: dict[str, Departure] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    details: dict[str, list[str] | bool] = field(default_factory=dict)

    def observe(self, updates: Sequence[tuple[str, Update]], threshold: float | None) -> None:
        """Take in the model and the training loss of each of a round's clients.

        `threshold` is the robust z-score from which a change is no usual one; None: nobody is watched.
        """
        if threshold is None:
            return
        logs = {key: (update.model, math.log(max(update.train_loss, _SMALLEST))) for key, update in updates}
        changes = {
            key: (model, level - float(np.median(self.levels[key])))
            for key, (model, level) in logs.items()
            if len(self.levels.get(key, ())) >= LEAST
        }
        references, together = self._references(changes, threshold)
        excesses = {key: change - references[model] for key, (model, change) in changes.items()}
        bound = threshold * _spread([*self.excesses.values(), list(excesses.values())])
        self.fresh = set()
        for key, (model, level) in logs.items():
            excess = excesses.get(key)
            if excess is None or excess <= bound:
                self._as_usual(key, level, excess)
            elif key in self.departed:
                self.departed[key].due -= 1
            else:
                self.departed[key] = Departure(model, level - excess, model in together)
                self.fresh.add(key)
        if found := sorted(key for key in logs if key in self.departed and not self.departed[key].asked):
            self.details["departed"] = found

    @property
    def away(self) -> set[str]:
        """Clients whose updates would harm their model: they departed in this round, or no model fits them."""
        return self.fresh | {key for key, departure in self.departed.items() if departure.unfit}

    def staying(self, updates: Sequence[tuple[str, Update]]) -> list[tuple[str, Update]]:
        """Return the updates without those of clients that are away, unless all of a model's are."""
        away = self.away
        stayed = {update.model for key, update in updates if key not in away}
        return [(key, update) for key, update in updates if key not in away or update.model not in stayed]

    def moves(
        self,
        assignment: MutableMapping[str, int],
        context: Round,
        ask: Callable[[Sequence[Client], Models, Round], Replies[Losses]],
    ) -> bool:
        """Ask those whose loss has departed for a loss vector and move them; say whether clusters are open again."""
        self.fresh = set()
        due = [client for client in context.participants if self._is_due(client.key)]
        # One model alone leaves nowhere to move.
        if not due or context.models.count == 1:
            return False
        moved = []
        for key, reply in ask(due, context.models, context).ok:
            departure = self.departed[key]
            departure.answered(reply.losses, assignment[key])
            best = int(np.argmin(reply.losses))
            # Whom no model fits stays, and is counted.
            if best != assignment[key] and not departure.unfit:
                assignment[key] = best
                moved.append(key)
        opened = self.opens()
        for key in moved:
            self.forget(key)
        self.details = {"asked": [client.key for client in due], "moved": moved, "opened": opened}
        return opened

    def _is_due(self, key: str) -> bool:
        return key in self.departed and self.departed[key].due <= 0

    def report(self) -> dict[str, Detail]:
        """Return the detail of the round's report, empty where there is nothing to say."""
        return {WATCH: dict(self.details)} if self.details else {}

    def forget(self, key: str) -> None:
        """Begin anew with a client that has moved."""
        for known in (self.levels, self.excesses, self.departed):
            known.pop(key, None)

    def opens(self) -> bool:
        """Say whether clients that no model fits are a group: they departed together, or were asked twice."""
        unfit = [departure for departure in self.departed.values() if departure.unfit]
        lasting = [departure.model for departure in unfit if departure.together or departure.unfit > 1]
        return any(lasting.count(model) > 1 for model in set(lasting))

    def _as_usual(self, key: str, level: float, excess: float | None) -> None:
        if self.departed.pop(key, None) is not None:
            # What it has learned meanwhile is its usual loss from now on.
            self.levels.pop(key, None)
        self.levels[key] = [*self.levels.get(key, ()), level][-LENGTH:]
        if excess is not None:
            self.excesses[key] = [*self.excesses.get(key, ()), excess][-LENGTH:]

    def _references(
        self, changes: Mapping[str, tuple[int, float]], threshold: float
    ) -> tuple[dict[int, float], set[int]]:
        """Return the change by which each model's clients are judged, and the models whose cluster departed."""
        by_model: dict[int, list[float]] = {}
        for key, (model, change) in changes.items():
            # Who has departed already says nothing of its cluster.
            if key not in self.departed:
                by_model.setdefault(model, []).append(change)
        everybody = [change for of in by_model.values() for change in of]
        common = float(np.median(everybody)) if len(everybody) >= LEAST else 0.0
        usual = float(np.median(self.commons)) if len(self.commons) >= LEAST else common
        most = usual + threshold * _spread([[change - usual for change in self.commons]])
        own = {model: float(np.median(of)) for model, of in by_model.items() if len(of) >= LEAST}
        # What the others' change is taken for where more of them have departed than not.
        others = {
            model: _usual([level for other, level in own.items() if other != model] or [change], usual, most)
            for model, change in own.items()
        }
        shifts = {model: change - others[model] for model, change in own.items()}
        bound = threshold * _spread([*self.shifts.values(), list(shifts.values())])
        together = {model for model, shift in shifts.items() if shift > bound}
        rest = _usual([common], usual, most)
        references = {model: own.get(model, rest) for model, _ in changes.values()}
        for model, shift in shifts.items():
            if model in together:
                references[model] = others[model]
            else:
                self.shifts[model] = [*self.shifts.get(model, ()), shift][-LENGTH:]
        if everybody and common <= most:
            self.commons = [*self.commons, common][-LENGTH:]
        return references, together


def _usual(changes: Sequence[float], usual: float, most: float) -> float:
    """Return the median of some changes, or the usual one where that is larger than can be."""
    median = float(np.median(changes))
    return median if median <= most else usual


def _spread(kept: Iterable[list[float]]) -> float:
    """Return the robust standard deviation about 0 of all values that are kept, at least `FLOOR`."""
    values = [abs(value) for of in kept for value in of]
    return max(FLOOR, 1.4826 * float(np.median(values))) if values else FLOOR


@dataclass(frozen=True)
class LossVectorSettings(Restarted):
    """Keys of the embedding by loss vectors, and of the watch on frozen clusters."""

    square_root: bool = setting(False, "take the square root of the losses before clustering and matching")
    memory: bool = setting(False, "cluster the latest loss vectors of all clients seen, not only this round's")
    outlier_loss: float | None = setting(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst, two rounds running; "
        "null: reject none",
        least=1,
        note="null rejects nobody",
    )
    watch: float | None = setting(
        None,
        "after the freeze: robust z-score from which a client's training loss departs from its cluster's, so that "
        "it is asked for a loss vector again; 8 is a good value, null: no watch",
        above=0,
        note="null: no watch",
    )
    probes: int = setting(
        0, "random models in addition to the K that loss vectors are also taken on, and that nobody trains", least=0
    )

    @property
    def extra_models(self) -> int:
        """First models that the algorithm needs beside the K that are trained."""
        return self.probes

    def conflicts(self) -> list[str]:
        """Refuse several starts with probes, which belong to the models of one."""
        problems = super().conflicts()
        if self.restarts > 1 and self.probes > 0:
            problems.append(f"strategy.probes={self.probes}: cannot be used with strategy.restarts; leave one out.")
        return problems


@dataclass
class LossVectorState(RestartState):
    """What is remembered of loss vectors and of clients that depart from frozen clusters.

    Attributes
    ----------
    known
        Latest embedded loss vector of each client that takes part in the clustering.
    frozen
        The clusters at the moment of stability; None before.
    outliers
        Clients whose losses are far above everybody else's.
    probes
        Random models, never trained, whose losses are embedded with those of the K; None where there are none.
    watch
        What clients' losses usually are once clusters are frozen, and whose has departed from that.
    """

    known: dict[str, FloatArray] = field(default_factory=dict)
    frozen: Frozen | None = None
    outliers: Outliers = field(default_factory=Outliers)
    probes: Models | None = None
    watch: Watch = field(default_factory=Watch)


S = TypeVar("S", bound=LossVectorSettings)
M = TypeVar("M", bound=LossVectorState)


class Embedded(NamedTuple):
    """A round's loss vectors, and the round whose models they were taken on, the probes among these.

    `keys` and `vectors` (n, K + probes) are of the clients to be clustered, `limit` is what the vectors are clipped
    to. `replied` are those of this round, and `kept` those that have kept the models for their training.
    """

    sent: Round
    keys: list[str]
    vectors: FloatArray
    limit: float
    replied: list[str]
    kept: set[str]


class LossVectors(Restarts[S, M]):
    """A method that groups clients by their losses of K models: with probes, no outliers, watched when frozen."""

    def check(self, models: Models) -> None:
        """Raise ValueError where there are fewer models than clusters, or than clusters and probes."""
        super().check(models)
        wanted = self.k if isinstance(self.k, int) else 1
        if self.state.probes is None and models.count < wanted + self.settings.probes:
            raise ValueError(
                f"strategy.probes={self.settings.probes}: the initial arrays hold {models.count} models, and "
                f"need {wanted} to train and the probes behind them; pack more, or use fewer probes"
            )

    def plan(self, context: Round) -> Plan[Update]:
        """Plan the round without probes: the last of the first models are kept as these, and never trained."""
        count, models = self.settings.probes, context.models
        if count and self.state.probes is None:
            self.state.probes = models.replaced(models.bank[-count:])
            context = replace(context, models=models.replaced(models.bank[:-count]))
        self.state.watch.details = {}
        return super().plan(context)

    def with_probes(self, context: Round) -> Round:
        """Return the round with the probes behind the K models."""
        if self.state.probes is None:
            return context
        bank = np.concatenate([context.models.bank, self.state.probes.bank])
        return replace(context, models=context.models.replaced(bank))

    def ask_losses(self, clients: Sequence[Client], models: Models, context: Round) -> Replies[Losses]:
        """Return the losses of clients that are no outliers, on all of their samples."""
        with context.meter.part("losses"):
            replies = context.ask_losses(clients, models, all_samples=True)
        return self.without_outliers(replies, context)

    def without_outliers(self, replies: Replies[Losses], context: Round) -> Replies[Losses]:
        """Return the replies of clients that can be clustered."""
        reports = [(key, reply.losses) for key, reply in replies.ok]
        for reason, keys in self.state.outliers.reject(reports, self.settings.outlier_loss).items():
            replies = context.reject(replies, keys, reason)
        return replies

    def embed(self, context: Round) -> Embedded:
        """Ask the participants for their losses of all models (one exchange), and embed those that can be clustered.

        A client whose loss vector was lost sits this round out: nobody can match it to a model.
        """
        sent = self.with_probes(context)
        with context.meter.part("losses"):
            replies = sent.ask_losses(context.participants, sent.models)
        limit = self.state.outliers.measure([reply.losses for _, reply in replies.ok])
        replies = self.without_outliers(replies, context)
        context.require(replies, "loss vector")
        fresh = {key: self._root(reply.losses) for key, reply in replies.ok}
        known = self.state.known = {**self.state.known, **fresh} if self.settings.memory else fresh
        keys = sorted(known)
        limit = float(self._root(np.array(self.state.outliers.limit(keys, limit))))
        vectors = clipped(np.stack([known[key] for key in keys]), limit)
        context.note_vectors("losses", keys, vectors)
        kept = {key for key, reply in replies.ok if reply.kept}
        return Embedded(sent, keys, vectors, limit, [key for key, _ in replies.ok], kept)

    def _root(self, losses: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(losses, 0.0)) if self.settings.square_root else losses

    def departed_open(self, context: Round) -> bool:
        """Move clients whose loss has departed from their cluster's; say whether clusters must be found anew."""
        if self.state.frozen is None or self.settings.watch is None:
            return False
        return self.state.watch.moves(self.assignment, context, self.ask_losses)

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average without clients that depart in this round, or that no model fits, unless all of a cluster do."""
        return super().average(self.state.watch.staying(updates))

    def details(self) -> dict[str, Detail]:
        """Return what first rounds and the watch report, and `stable_from` in the round that froze the clusters."""
        froze = self.state.frozen is not None and self.state.phase != "stable"
        freeze: dict[str, Detail] = {STABLE_FROM: self.context.server_round + 1} if froze else {}
        return {**super().details(), **self.state.watch.report(), **freeze}

    def frozen_clusters(self) -> Frozen | None:
        """Return the clusters at the moment of stability."""
        return self.state.frozen
