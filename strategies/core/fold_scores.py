"""The score of every number of groups: how well centres found on some folds predict the fold left out.

Each client trains one common model on m disjoint folds of its data; the m updates are its *rows*. A group of
clients is real as far as its centre on m - 1 folds points where its members' rows of the last fold point.

Notation of this file, beside the folder's: ``m`` folds, ``x_f(i)`` the row of client i in fold f, unit length, minus
the mean of all clients in that fold; ``a_f(i)`` the mean of client i's rows in the other folds. A partition of the
clients gives centres: ``c_f(i)`` is the mean of a_f over the group of i. The score is ::

    score(K) = mean over f of  sum_i <c_f(i), x_f(i)> / ( |c_f| |x_f| ),     |c|^2 = sum_i |c(i)|^2

with the groups of a tree of a_f, cut at K. Nothing in the numerator's second factor was seen by the tree. There are
two trees, and at each K the one that predicts better counts. Ward's finds groups of like size even where single
clients are noisy. Average linkage sets one or two clients apart from a large group, where Ward's first cuts all go
through the noise: to split n noisy clients in half lowers its sum of squares by more, the larger n is.

**Why it peaks at the right K.** Write a row as signal plus noise, N the energy of the noise in a_f(i), and S_k the
energy (squared length, summed over clients) of the signal that k groups keep. If the noise has many directions, the
tree cannot fit it, a group's centre holds 1 / (group size) of the noise energy, and with the right labels ::

    E <c, x> = S_k,   E |c|^2 = S_k + (k - 1) N,   so   E score(k) is proportional to  S_k / sqrt(S_k + (k - 1) N).

(k - 1, and not k, because the rows are centred.) Splitting a true group leaves S_k and adds N: the score falls.
Merging the groups a and b loses the energy s = n_a n_b / (n_a + n_b) |mean_a - mean_b|^2, and the score falls if ::

    s > N S / (S + 2 (k - 1) N)      (to first order in s; S = S_k, k the number before the merge),

at most N: two groups are told apart once what separates them outweighs one client's noise. There is no threshold
on a distance, and no scale.

**What the argument needs.** Noise of high effective dimension tr(C)^2 / tr(C^2), C its covariance: the tree chases
the noise's few strong directions otherwise and finds centres that do not predict, which lowers the score of the
right K and of all others. And noise that is independent between folds: what one client repeats in all its folds is
signal to this score. Where each client has an effect of its own on top of its group's, with more energy than the
noise, S_k rises up to k = M and so does the score.
"""

import numpy as np
from scipy.cluster.hierarchy import linkage

from florets.strategies.core import FloatArray, IntArray

LINKAGES = ("ward", "average")

# Rows of unit length that differ from their mean by less energy than this do so by rounding.
EQUAL = 1e-24


def centred_rows(folds: FloatArray) -> FloatArray:
    """Return the rows (M, m, D) at unit length, minus each fold's mean over the clients, as (m, M, D).

    A row of zeros has no direction: it stays 0 before the mean is taken off. ValueError if an entry is not finite.
    """
    rows = np.array(np.swapaxes(folds, 0, 1), dtype=np.float64)
    # By the largest entry first: squares of very large or small entries would leave the range of a float.
    largest = np.abs(rows).max(axis=2, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError("a fold's row has an entry that is not finite: leave that client out.")
    rows /= np.where(largest > 0.0, largest, 1.0)
    rows /= np.where(largest > 0.0, np.linalg.norm(rows, axis=2, keepdims=True), 1.0)
    rows -= rows.sum(axis=1, keepdims=True) / max(rows.shape[1], 1)
    rows[(rows**2).sum(axis=2) < EQUAL] = 0.0
    return rows


def gram_of(rows: FloatArray) -> FloatArray:
    """Return the inner products (m, M, m, M) of all rows: entry ``[f, i, g, j]`` is that of x_f(i) and x_g(j)."""
    num_folds, num_clients, _ = rows.shape
    flat = rows.reshape(num_folds * num_clients, -1)
    gram: FloatArray = (flat @ flat.T).reshape(num_folds, num_clients, num_folds, num_clients)
    return gram


def centred_gram(gram: FloatArray) -> FloatArray:
    """Return the Gram matrix after each fold's mean over the clients is taken off the rows, (m, M, m, M)."""
    half = gram - gram.mean(axis=1, keepdims=True)
    centred: FloatArray = half - half.mean(axis=3, keepdims=True)
    return centred


def permuted(gram: FloatArray, order: IntArray) -> FloatArray:
    """Return the Gram matrix of the rows after the clients of each fold changed places.

    Parameters
    ----------
    gram : (m, M, m, M) float64
        From `gram_of`.
    order : (m, M) int64
        ``order[f, i]`` is the client whose row of fold f client i now has.
    """
    num_folds, num_clients = order.shape
    index = (np.arange(num_folds)[:, None] * num_clients + order).ravel()
    flat = gram.reshape(len(index), len(index))
    # Rows first, then columns: one indexing by both takes several times as long.
    both: FloatArray = flat.take(index, axis=0).take(index, axis=1).reshape(gram.shape)
    return both


def distances(gram: FloatArray) -> FloatArray:
    """Return the distances of the vectors with these inner products (..., M, M), in SciPy's condensed order."""
    energy = np.diagonal(gram, axis1=-2, axis2=-1)
    squares = energy[..., :, None] + energy[..., None, :] - 2.0 * gram
    upper = ~np.tri(gram.shape[-1], dtype=bool)
    lengths: FloatArray = np.sqrt(np.maximum(squares[..., upper], 0.0))
    return lengths


def scores(gram: FloatArray) -> FloatArray:
    """Return the score of 2, ..., M groups for each kind of tree, (2, M - 1), from the inner products of `gram_of`.

    One tree serves all cuts. A node of the tree is a run of neighbours in the order of its leaves, so the sums over
    pairs of its members are four entries of a two-dimensional running sum, and a cut's sums follow from the next
    finer one's: all cuts of a tree cost M^2 additions. Scores are in [-1, 1]; 0 where no centre or no row differs
    from the mean.
    """
    num_folds, num_clients = gram.shape[:2]
    others, held_out, energy = products_of(gram)
    cosine = np.zeros((len(LINKAGES), num_clients - 1))
    for fold, pairs in enumerate(distances(others)):
        products = np.stack([held_out[fold], others[fold]])
        for row, method in enumerate(LINKAGES):
            predicted, length = _along(linkage(pairs, method), products)
            valid = (length > EQUAL * num_clients) & (energy[fold] > EQUAL * num_clients)
            cosine[row] += np.where(valid, predicted / np.sqrt(np.where(valid, length * energy[fold], 1.0)), 0.0)
    mean: FloatArray = cosine / num_folds
    return mean


def products_of(gram: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the inner products that scores are made of, with each fold f left out in turn.

    ``<a_f(i), a_f(j)>`` (m, M, M), by which trees are built; ``<a_f(i), x_f(j)>`` (m, M, M); and ``|x_f|^2`` (m,),
    summed over clients.
    """
    num_folds = len(gram)
    every = np.arange(num_folds)
    own = gram[every, :, every]  # [f, i, j]: <x_f(i), x_f(j)>
    cross = gram.sum(axis=0).swapaxes(0, 1)  # [f, i, j]: the sum over all folds g of <x_g(i), x_f(j)>
    others = (cross.sum(axis=0) - cross - cross.swapaxes(1, 2) + own) / (num_folds - 1) ** 2
    return others, (cross - own) / (num_folds - 1), np.trace(own, axis1=1, axis2=2)


def _along(tree: FloatArray, products: FloatArray) -> FloatArray:
    """Return, for the cuts into 2, ..., M groups, the sum over groups of (sum of products within) / (group size).

    With the inner products of a and b it is the sum over clients of <centre of a in the client's group, b>; several
    matrices of products (B, M, M) at once give (B, M - 1).
    """
    num_matrices, num_clients, _ = products.shape
    begin, sizes = _spans(tree)
    order = np.argsort(begin[:num_clients])
    running = np.zeros((num_matrices, num_clients + 1, num_clients + 1))
    np.cumsum(products.take(order, axis=1).take(order, axis=2).cumsum(axis=1), axis=2, out=running[:, 1:, 1:])
    end = begin + sizes
    within = running[:, end, end] - running[:, begin, end] - running[:, end, begin] + running[:, begin, begin]
    share = within / sizes
    children = tree[:-1, :2].astype(np.int64)
    gain = share[:, num_clients:-1] - share[:, children[:, 0]] - share[:, children[:, 1]]
    # From everybody alone (K = M) up the tree; the last merge, into one group, is left out.
    alone = share[:, :num_clients].sum(axis=1, keepdims=True)
    return np.concatenate([alone, alone + gain.cumsum(axis=1)], axis=1)[:, ::-1]


def _spans(tree: FloatArray) -> tuple[IntArray, IntArray]:
    """Return where each node's leaves begin in an order that keeps them together, and how many they are.

    Leaves first, then merges, as SciPy numbers them. (Its own `leaves_list` checks the tree for longer than all the
    rest of a score takes.)
    """
    num_clients = len(tree) + 1
    sizes = [1] * num_clients + tree[:, 3].astype(np.int64).tolist()
    begin = [0] * len(sizes)
    children = tree[:, :2].astype(np.int64).tolist()
    for node in range(len(sizes) - 1, num_clients - 1, -1):
        left, right = children[node - num_clients]
        begin[left] = begin[node]
        begin[right] = begin[node] + sizes[left]
    return np.array(begin), np.array(sizes)
