"""The permutation test of discovery: whether clients repeat in one fold what they did in the others."""

import math

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.fold_scores import centred_gram, permuted, scores

# The test of more clients is made with so many of them, drawn at random: 399 permutations of 150 clients with four
# folds take some 5 s, and the time grows with the square.
CLIENTS = 150
# After this many permutations that reach the observed score, the p value is known to about a third.
ENOUGH = 10
# Scores that differ by less are equal but for the order of their additions.
ROUNDING = 1e-10


def can_reject(num_clients: int, num_folds: int, level: float) -> bool:
    """Say whether there are enough different permutations for a p value at the level.

    Permuting the clients of all folds alike changes nothing, so (M!)^(m - 1) arrangements are different at
    most. Two clients need nine folds at a level of 0.5 %; three clients need four.

    Groups need more of them, see `p_value_far_apart`.
    """
    return (num_folds - 1) * math.lgamma(num_clients + 1) >= -math.log(level)


def p_value_far_apart(sizes: IntArray, num_folds: int) -> float:
    """Return up to which value the p value of groups of these sizes is, however far apart they are.

    Where members of one group change places the score changes by noise alone. What counts is in how many ways clients
    can be given to groups of these sizes, M! / prod n!, to the power m - 1: 216 for two pairs and four folds, 64 for
    one client beside three, 125 for one beside four. Where that is above the level, groups are found by chance only.
    """
    ways = math.lgamma(int(sizes.sum()) + 1) - sum(math.lgamma(size + 1) for size in sizes.tolist())
    return math.exp(-(num_folds - 1) * ways)


def permutation_p_value(gram: FloatArray, level: float, permutations: int, rng: np.random.Generator) -> float:
    """Return the p value of the largest score, under permutations of the clients of each fold.

    **The null hypothesis**: all clients' rows of a fold are exchangeable, and the folds independent of each other.
    That is so when all clients draw from one distribution and their folds are disjoint, of one size and trained
    alike. Which row of fold f then stands beside which row of fold g is a matter of chance, every permutation of the
    clients within each fold is as likely as the one observed, and the p value is exact for any number of clients,
    folds, dimensions and any distribution of the rows: P(p <= u) <= u.

    **It is not exact** where folds share records (repeated random splits of the same data are dependent, the test
    then rejects too often), or where clients differ in what is no group: folds of unequal size or number of steps,
    duplicated records in two folds of one client. A client's rows are then alike for that reason, and the test, as
    it must, finds that clients differ.

    **Early stopping** keeps it exact: the permutations end at the ``h``-th that reaches the observed score, with
    p = h / (number drawn), and otherwise after all of them, with p = (reached + 1) / (permutations + 1). ``h`` is 10,
    or more where fewer could still be significant. Without groups some twenty permutations are enough.

    Parameters
    ----------
    gram : (m, M, m, M) float64
        From `fold_scores.gram_of`.
    level : float
        Level at which the p value will be read.
    permutations : int
        Most permutations drawn.
    rng : numpy.random.Generator
        Draws them, and the clients of the test where there are more than 150: a random part of exchangeable clients
        is exchangeable, so the p value stays exact and only power is lost.

    Returns
    -------
    float
        In (0, 1]. A permutation that ties counts as having reached the score.

    Source: Besag and Clifford, Sequential Monte Carlo p-values, 1991, for the stopping.
    """
    if gram.shape[1] > CLIENTS:
        chosen = np.sort(rng.choice(gram.shape[1], size=CLIENTS, replace=False))
        gram = centred_gram(gram.take(chosen, axis=1).take(chosen, axis=3))
    num_folds, num_clients = gram.shape[:2]
    observed = scores(gram).max()
    enough = max(ENOUGH, math.floor(level * (permutations + 1)))
    order = np.tile(np.arange(num_clients), (num_folds, 1))
    reached = 0
    for drawn in range(1, permutations + 1):
        # The first fold stays: only how the folds lie beside each other matters.
        order[1:] = rng.permuted(order[1:], axis=1)
        if scores(permuted(gram, order)).max() >= observed - ROUNDING:
            reached += 1
            if reached == enough:
                return reached / drawn
    return (reached + 1) / (permutations + 1)
