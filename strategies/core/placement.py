"""Placement of clients that come after a discovery: the group of the largest cosine, or none."""

from dataclasses import dataclass

import numpy as np

from florets.strategies.core import FloatArray, IntArray


@dataclass(frozen=True)
class Centres:
    """What placing a newcomer needs to know of the groups found.

    `origin` (D,) is the mean of all clients' rows, each at unit length; `directions` (K, D) each group's mean of
    those rows minus the origin, at unit length; `usual` (K,) the median cosine of a group's members with the mean of
    its other members (of a group of one the mean of the other groups' values).
    """

    origin: FloatArray
    directions: FloatArray
    usual: FloatArray


def unit_mean(rows: FloatArray) -> FloatArray:
    """Return the mean over the folds of finite rows (..., m, D) at unit length; one of zeros has none and stays 0."""
    means: FloatArray = unit(rows).mean(axis=-2)
    return means


def centres(folds: FloatArray, labels: IntArray) -> Centres:
    """Return the centres of the groups `labels` (M,), each with a member, found in the rows of `folds` (M, m, D)."""
    means = unit_mean(np.asarray(folds, dtype=np.float64))
    origin = means.mean(axis=0)
    means -= origin
    member = np.eye(int(labels.max()) + 1)[labels]  # (M, K)
    sizes = member.sum(axis=0)
    sums = member.T @ means
    alone = sizes[labels] == 1
    cosine = _cosine(means, sums[labels] - means)
    usual = np.array(
        [np.median(cosine[labels == group]) if sizes[group] > 1 else np.nan for group in range(len(sizes))]
    )
    usual = np.where(np.isnan(usual), 0.0 if alone.all() else np.nanmean(usual), usual)
    return Centres(origin, unit(sums / sizes[:, None]), usual)


def place(row: FloatArray, groups: Centres, fit: float | None = 0.5) -> tuple[int, float]:
    """Return the group of a newcomer with row (D,) or rows (m, D), -1 where none fits, and its cosine to the nearest.

    None fits below the share `fit` of the cosine that the nearest group's own members usually have; None: the nearest
    fits.
    """
    mean = unit_mean(np.atleast_2d(np.asarray(row, dtype=np.float64))) - groups.origin
    cosine = _cosine(np.broadcast_to(mean, groups.directions.shape), groups.directions)
    nearest = int(np.argmax(cosine))
    value = float(cosine[nearest])
    fits = fit is None or (value > 0.0 and value >= fit * groups.usual[nearest])
    return (nearest if fits else -1), value


def unit(rows: FloatArray) -> FloatArray:
    """Return rows (..., D) of length 1; rows of zeros stay."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    units: FloatArray = rows / np.where(length > 0.0, length, 1.0)
    return units


def _cosine(left: FloatArray, right: FloatArray) -> FloatArray:
    cosine: FloatArray = (unit(left) * unit(right)).sum(axis=-1)
    return np.clip(cosine, -1.0, 1.0)
