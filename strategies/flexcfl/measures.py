"""FlexCFL's arithmetic: distances EDC and MADC of updates, inter-group aggregation, shifts of labels."""

import numpy as np
from scipy.linalg import svd

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.agglomerative import group_into
from florets.strategies.core.cluster import cluster
from florets.strategies.core.cosine import cosines
from florets.strategies.core.threads import one_thread

MEASURES = ("edc", "madc")


def group_updates(updates: FloatArray, num_groups: int, measure: str, rng: np.random.Generator) -> IntArray:
    """Return the group (M,) of each client by its update (M, D), at most `num_groups`, in order of first appearance.

    ``"edc"`` is k-means of the decomposed cosines, ``"madc"`` complete linkage of the cosine differences.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749) and 2020 (FedGroup, arXiv 2010.06870), clustering of the pre-
    trained clients.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure {measure!r} is unknown: choose one of {', '.join(MEASURES)}.")
    if measure == "madc":
        return group_into(cosine_differences(updates), num_groups, "complete").clusters
    return cluster(decomposed_cosines(updates, num_groups), num_groups, "kmeans", rng)


def decomposed_cosines(updates: FloatArray, count: int) -> FloatArray:
    """Return the cosine (M, count) of each update with each of the leading directions of all of them.

    The distance of two rows is the "Euclidean distance of decomposed cosine similarity" (EDC). The directions are
    singular vectors of the matrix of updates: with U S V^T = updates, the cosine of row i with direction j is U_ij
    S_j / |update_i|, so that no direction is ever formed. A column's entry of largest size is positive; an update of
    zeros has cosines of 0.

    Source: FlexCFL and FedGroup, EDC.
    Deviation: all singular values are found, where the released code takes a randomised decomposition.
    """
    # Their common scale cancels; without it squares of large updates could overflow.
    scaled = updates / (np.abs(updates).max(initial=0.0) or 1.0)
    with one_thread():
        left, values, _ = svd(scaled, full_matrices=False)
    features = (left * values)[:, :count]
    lengths = np.sqrt(np.sum((left * values) ** 2, axis=1, keepdims=True))
    features = features / np.where(lengths > 0, lengths, 1.0)
    largest = np.argmax(np.abs(features), axis=0)
    signs = np.where(np.take_along_axis(features, largest[np.newaxis], axis=0) < 0, -1.0, 1.0)
    signed: FloatArray = features * signs
    return signed


def cosine_differences(updates: FloatArray) -> FloatArray:
    """Return how differently two clients see the others: their "mean of absolute differences of cosines" (MADC).

    Of clients i and j it is the mean, over all other clients z, of |cos(i, z) - cos(j, z)|; of two clients alone 1 -
    cos(i, j).

    Source: FlexCFL and FedGroup, MADC.
    Deviation: the two clients' own cosines, which the released code's mean of whole rows contains, are left out: they
    are 1 and cos(i, j) in one row, and cos(i, j) and 1 in the other.
    """
    similarity = cosines(updates)
    number = len(similarity)
    if number < 3:
        differences: FloatArray = np.clip(1.0 - similarity, 0.0, None)
        np.fill_diagonal(differences, 0.0)
        return differences
    differences = np.zeros_like(similarity)
    for row in range(number):
        apart = np.abs(similarity - similarity[row])
        # Columns `row` and j are the two clients' own.
        own = apart[:, row] + np.diagonal(apart)
        differences[row] = (apart.sum(axis=1) - own) / (number - 2)
        differences[row, row] = 0.0
    return np.maximum(differences, differences.T)


def nearest_direction(update: FloatArray, directions: FloatArray) -> int:
    """Return the group whose direction has the largest cosine with one client's update; the first among equals.

    Parameters
    ----------
    update : (D,) float64
    directions : (C, D) float64

    Source: FlexCFL, cold start of a newcomer: the group of least normalised cosine dissimilarity.
    """
    return int(np.argmax(cosines(update[np.newaxis], directions)[0]))


_MOST = 1e100


def mix_groups(bank: FloatArray, groups: int, rate: float, entries: BoolArray) -> FloatArray:
    """Return the bank (K, R) with the models of the first groups moved towards each other.

    Model g becomes the mean of itself, with weight 1, and of every other group's model j, with weight eta /
    |theta_j|: a convex combination, so that models that are equal stay as they are. Only `entries` (R,), the
    trainable parameters, are mixed, and count in the length.

    Source: FlexCFL, inter-group aggregation with learning rate eta_g, as the released code normalises it.
    """
    mixed = np.array(bank, dtype=np.float64)
    if rate == 0 or groups < 2:
        return mixed
    models = bank[:groups][:, entries]
    lengths = np.sqrt(np.sum(models**2, axis=1))
    # A model of zeros has no direction to move to.
    # At the cap a model keeps nothing of itself; beyond it sums could overflow.
    weights = np.where(lengths > 0, np.minimum(rate / np.where(lengths > 0, lengths, 1.0), _MOST), 0.0)
    for group in range(groups):
        others = np.arange(groups) != group
        pull = np.sum(weights[others, np.newaxis] * models[others], axis=0)
        mixed[group, entries] = (models[group] + pull) / (1.0 + weights[others].sum())
    return mixed


def label_shift(before: IntArray, now: IntArray) -> float:
    """Return the earth mover's distance of two histograms of labels, as federated learning defines it.

    It is the sum over classes of the absolute difference of the two fractions: 0 for equal fractions, 2 where no
    class is in both.

    Parameters
    ----------
    before, now : (C,) int64
        Samples of each class; a histogram without any samples has fractions of 0.

    Source: FlexCFL, client migration, whose threshold is on this scale.
    Deviation: the released code compares the counts as if they were samples of one variable, which cannot see two
    classes change places. Fractions are compared, so that more data of the same kind are no shift.
    """
    fractions = [counts / max(int(counts.sum()), 1) for counts in (before, now)]
    return float(np.abs(fractions[0] - fractions[1]).sum())
