"""Outliers among updates and losses: values that no benign training gives."""

import math

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.round import Round
from florets.strategies.core.outliers import (
    LOSS_FACTOR,
    UPDATE_FACTOR,
    loss_scale,
    lower_median,
    outlier_losses,
    outlier_terms,
    outlier_updates,
)
from florets.task.wire.replies import Losses, Update

OUTLIER = (
    f"rejected as an outlier: its values are over {UPDATE_FACTOR:g} times the others' and the models' (a fixed bound)"
)


def without_outliers(updates: Replies[Update], r: Round, known: float = 0.0) -> Replies[Update]:
    """Return the updates without those whose values no benign training gives (`core.outliers`).

    `known` is the largest value that others returned before on the same request; with it even a single update is
    judged.
    """
    if not updates.ok:
        return updates
    if far := _far_terms(updates, r):
        return without_outliers(r.reject(updates, far, OUTLIER), r, known)
    others = [update.others for _, update in updates.ok]
    # Of most rounds what is known of each update already shows that none is larger than the models allow.
    most_allowed = UPDATE_FACTOR * r.models.largest
    bounds = (getattr(update.values, "bound", math.inf) for _, update in updates.ok)
    if all(values is None for values in others) and all(bound <= most_allowed for bound in bounds):
        return updates
    found = outlier_updates(np.array([update.largest for _, update in updates.ok]), r.models.largest, known)
    if any(values is not None for values in others):
        each = zip(others, updates.ok, strict=True)
        most = [np.abs(one.vector if own is None else own).max(initial=0.0) for own, (_, one) in each]
        found |= outlier_updates(np.array(most, dtype=np.float64), r.models.largest, known)
    keys = {key for (key, _), is_outlier in zip(updates.ok, found, strict=True) if is_outlier}
    return r.reject(updates, keys, OUTLIER)


def without_far_losses(
    replies: Replies[Losses], r: Round, factor: float = LOSS_FACTOR, scale: float | None = None, remedy: str = ""
) -> Replies[Losses]:
    """Return the replies without those whose losses no benign client has (`core.outliers`).

    `scale` is the largest `loss_scale` of the run so far, by default that of these replies; `remedy` is said of those
    that are left out.
    """
    if not replies.ok:
        return replies
    losses = np.stack([reply.losses for _, reply in replies.ok])
    mask = outlier_losses(losses, loss_scale(losses) if scale is None else scale, factor)
    far = {key for (key, _), is_far in zip(replies.ok, mask, strict=True) if is_far}
    return r.reject(replies, far, f"rejected as an outlier: its losses are far above the others'{remedy}")


def _far_terms(updates: Replies[Update], r: Round) -> set[str]:
    """Return the clients whose gradients or Hessians no benign training gives."""
    own = [(key, one, one.gradient, one.hessian) for key, one in updates.ok]
    known = [(key, one, slope, curve) for key, one, slope, curve in own if slope is not None and curve is not None]
    if not known:
        return set()
    slopes = np.array([np.abs(slope).max(initial=0.0) / one.num_examples for _, one, slope, _ in known])
    curvatures = np.array([np.diagonal(curve).max(initial=0.0) / one.num_examples for _, one, _, curve in known])
    length = max(lower_median(np.array([one.largest for _, one, _, _ in known])), r.models.largest)
    found = outlier_terms(slopes, curvatures, length)
    return {key for (key, *_), is_outlier in zip(known, found, strict=True) if is_outlier}
