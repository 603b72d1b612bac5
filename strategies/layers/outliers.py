"""Outliers: losses and updates far above all others' do not count."""

from dataclasses import dataclass

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.layer import Layer
from florets.strategies.base.outliers import without_far_losses, without_outliers
from florets.strategies.base.round import Round
from florets.strategies.core.outliers import loss_scale
from florets.task.wire.replies import Losses, Update


@dataclass
class Seen:
    """Largest `loss_scale` of the run so far."""

    scale: float = 0.0


class LossOutliers(Layer):
    """Rejects loss vectors far above the others'; `factor` None: none."""

    name = "loss outliers"
    State = Seen

    def __init__(self, factor: float | None) -> None:
        self.factor = factor

    def losses(self, replies: Replies[Losses], r: Round, everybody: bool) -> Replies[Losses]:
        # With one model there is nothing to group by, and nobody to be kept from it.
        if self.factor is None or not replies.ok or len(replies.ok[0][1].losses) == 1:
            return replies
        seen: Seen = self.kept(r)
        if everybody:
            seen.scale = max(seen.scale, loss_scale(np.stack([reply.losses for _, reply in replies.ok])))
        remedy = " (strategy.outlier_loss; null groups a client whose data are in another unit)"
        return without_far_losses(replies, r, self.factor, seen.scale, remedy)


class UpdateOutliers(Layer):
    """Rejects updates whose values are far above the others' and the models'."""

    name = "update outliers"

    def updates(self, replies: Replies[Update], r: Round) -> Replies[Update]:
        return without_outliers(replies, r)
