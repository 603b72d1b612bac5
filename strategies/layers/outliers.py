"""Outliers: losses or updates that no benign data give."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.layer import Layer
from florets.strategies.base.outliers import without_outliers
from florets.strategies.base.round import Round
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import clipped, equal_for_all_models, loss_scale, outlier_losses, worst_losses
from florets.strategies.core.robust import most_expelled
from florets.task.wire.replies import Losses, Update

PATIENCE = 2
"""Consecutive rounds in which an outlier is rejected before it is clustered with its losses clipped."""
CLIP = 1.25
"""Bound to which losses are clipped, in worst losses of the median client.

Near enough that a lone liar does not take a cluster from groups that lie apart (1.5 lets it, on digits), and far
enough that a group in another unit stands apart before its models have learned anything.
"""

FAR = "rejected as an outlier: its losses are far above the others' (strategy.outlier_loss)"
EQUAL = f"{FAR} and equal for all models"


@dataclass(eq=False)
class Seen:
    """Which clients are outliers, and since when.

    In one round a broken client and one whose data are in another unit (targets 20 times as large make squared errors
    400 times as large) look alike; over several they differ. A passing fault is gone after `PATIENCE` rounds, and
    most lasting ones report the same loss for every model, which no data give and no clustering can use.

    So an outlier is rejected in `PATIENCE` consecutive rounds and then clustered, with all vectors of that round
    clipped, its own and those of clients just below the bound alike. A vector that is equal for all models stays
    rejected. Several clients that invent another vector in every round can do the harm of false losses of usual size.

    Attributes
    ----------
    scale
        Largest `loss_scale` of the run so far.
    rejected
        By client: consecutive rounds in which it was rejected.
    admitted
        Outliers that are clustered.
    """

    scale: float = 0.0
    rejected: dict[str, int] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)

    def measure(self, losses: Sequence[FloatArray]) -> float:
        """Add a round's loss vectors (K,) to the scale; return the value to clip them to if needed."""
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


class LossOutliers(Layer):
    """Rejects loss vectors far above the others', and scales down those that it admits."""

    name = "loss outliers"
    State = Seen

    def __init__(self, factor: float | None) -> None:
        self.factor = factor

    def losses(
        self, replies: Replies[Losses], limit: float, r: Round, everybody: bool
    ) -> tuple[Replies[Losses], float]:
        """Return the losses of clients that can be grouped; one limit holds for all vectors of a round."""
        seen: Seen = self.kept(r)
        if everybody:
            limit = seen.measure([reply.losses for _, reply in replies.ok])
        reports = [(key, reply.losses) for key, reply in replies.ok]
        for reason, refused in seen.reject(reports, self.factor).items():
            replies = r.reject(replies, refused, reason)
        if not everybody:
            return replies, limit
        keys, rule = [key for key, _ in replies.ok], r.averaging.robust
        # Of so few clients the quarantine says nothing.
        few = rule is None or len(keys) - most_expelled(len(keys), rule.hostile) <= r.models.count + 1
        limit = seen.limit(keys, limit) if few else limit
        if math.isinf(limit):
            return replies, limit
        ok = tuple(
            (key, replace(reply, losses=clipped(reply.losses[np.newaxis], limit)[0])) for key, reply in replies.ok
        )
        return replace(replies, ok=ok), limit


class UpdateOutliers(Layer):
    """Rejects updates whose values are far above the others' and the models'."""

    name = "update outliers"

    def updates(self, replies: Replies[Update], r: Round) -> Replies[Update]:
        """Return the updates without outliers."""
        return without_outliers(replies, r)
