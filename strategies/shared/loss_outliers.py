"""Loss vectors that are far above the others': rejected where one of them would decide what all clients get."""

import numpy as np

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import Replies
from florets.strategies.core import FloatArray
from florets.strategies.core.outliers import loss_scale, outlier_losses
from florets.task.wire.replies import Losses

FAR = "rejected as an outlier: its losses are far above the others' (a fixed bound)"
_FACTOR = 100.0


def without_outliers(replies: Replies[Losses], context: Round, losses: FloatArray | None = None) -> Replies[Losses]:
    """Return the replies without those whose losses no benign client has (`core.outliers`).

    Parameters
    ----------
    losses : (M, C) float64, optional
        What is looked at of each valid reply; None: the losses that it holds.
    """
    if not replies.ok:
        return replies
    rows = np.stack([reply.losses for _, reply in replies.ok]) if losses is None else losses
    mask = outlier_losses(rows, loss_scale(rows), _FACTOR)
    far = {key for (key, _), is_far in zip(replies.ok, mask, strict=True) if is_far}
    return context.reject(replies, far, FAR)
