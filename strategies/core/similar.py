"""Merge groups whose directions are alike."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.threads import one_thread


def merge_similar(sums: FloatArray, least: float) -> IntArray:
    """Merge the two groups of the largest cosine again and again, as long as it is at least `least`.

    Parameters
    ----------
    sums : (C, R) float64
        Sum of the directions of each group's clients; its cosine with another is that of their means. Not modified.
    least : float
        From -1, which merges all, to above 1, which merges none.

    Returns
    -------
    (C,) int64
        Merged group of each, numbered from 0 in order of first appearance. A direction of length 0 has a cosine of 0
        with every other one; among equal cosines the first pair is merged.

    Source: Zeng et al. 2023 (StoCFL), the merging step of stochastic client clustering. Deviation: after each merge
    the cosines of the union are taken anew; the published code goes once through those of before, so that two groups
    can be joined by a third.
    """
    directions = sums.astype(np.float64)
    groups = np.arange(len(directions))
    if len(groups) < 2:
        return groups
    alive = list(range(len(directions)))
    cosines = _cosines(directions, directions)
    np.fill_diagonal(cosines, -np.inf)
    while len(alive) > 1:
        part = cosines[np.ix_(alive, alive)]
        row, column = sorted(divmod(int(part.argmax()), len(alive)))
        if part[row, column] < least:
            break
        kept, gone = alive[row], alive[column]
        directions[kept] += directions[gone]
        groups[groups == gone] = kept
        alive.remove(gone)
        cosines[kept] = cosines[:, kept] = _cosines(directions[[kept]], directions)[0]
        cosines[kept, kept] = -np.inf
    return canonical(groups)


def _cosines(rows: FloatArray, others: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(rows, axis=1)[:, np.newaxis] * np.linalg.norm(others, axis=1)
    with one_thread():
        products = rows @ others.T
    cosines: FloatArray = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return np.clip(cosines, -1.0, 1.0)
