"""`LossVectors`: clients embedded by their losses of K models, with probes, outliers and a watch after the freeze."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from florets.strategies.base.round import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import STABLE_FROM, Client, Detail
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import clipped, equal_for_all_models, loss_scale, outlier_losses, worst_losses
from florets.strategies.core.robust import most_expelled
from florets.strategies.shared.restarts import Restarted, Restarts, RestartState
from florets.strategies.shared.watch import WATCH, Watch
from florets.task.keys import setting
from florets.task.wire.leaving import LOSS_VECTORS, MODELS
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


@dataclass(frozen=True)
class LossVectorSettings(Restarted):
    """Keys of the embedding by loss vectors, and of the watch on frozen clusters."""

    square_root: bool = setting(False, "cluster the square roots of the losses")
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
        "after the freeze: robust z-score of a client's training loss within its cluster from which the client is "
        "asked for a loss vector again; 8 is a good value, null: no watch",
        above=0,
        note="null: no watch",
    )
    probes: int = setting(0, "additional random models, never trained, on which loss vectors are also taken", least=0)

    @property
    def extra_models(self) -> int:
        """First models that the algorithm needs in addition to the K that are trained."""
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

    leaving = (MODELS, LOSS_VECTORS)

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
        """Return the replies of clients that can be clustered: with privacy of all, whose losses are then clipped."""
        if self.privacy is not None:
            return replies
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
        rule = context.averaging.robust
        # Of so few clients nothing is said of who is far, see `bounded_rows`.
        few = rule is None or len(keys) - most_expelled(len(keys), rule.hostile) <= context.models.count + 1
        limit = self.state.outliers.limit(keys, limit) if few else limit
        limit = float(self._root(np.array(limit)))
        vectors = np.stack([known[key] for key in keys])
        # With privacy they are clipped elsewhere, and noise may make them negative.
        vectors = vectors if self.privacy is not None else clipped(vectors, limit)
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
        watched = self.settings.watch is not None
        return super().average(self.state.watch.staying(updates) if watched else updates)

    def details(self) -> dict[str, Detail]:
        """Return what first rounds and the watch report, and `stable_from` in the round that froze the clusters."""
        froze = self.state.frozen is not None and self.state.phase != "stable"
        freeze: dict[str, Detail] = {STABLE_FROM: self.context.server_round + 1} if froze else {}
        watch: dict[str, Detail] = {WATCH: dict(self.state.watch.details)} if self.state.watch.details else {}
        return {**super().details(), **watch, **freeze}

    def frozen_clusters(self) -> Frozen | None:
        """Return the clusters at the moment of stability."""
        return self.state.frozen
