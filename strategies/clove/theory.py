"""Theory of CLoVE: separation and proximity of loss vectors, and the conditions of its theorems."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist, pdist

from florets.strategies.base.theory import NOT_KNOWN, OF_LINEAR, Case, Row, row
from florets.strategies.core import FloatArray, IntArray


def proximity(vectors: FloatArray, centres: FloatArray, clusters: IntArray) -> tuple[float, float]:
    """Return the norm of the centred loss vectors (M, N), and the largest c' with which they satisfy Theorem A.9.

    It is the least, over clients i of cluster j and other clusters j', of how much farther a_i is from the centre of
    j' than from its own, divided by (K/m_j + K/m_j') times that norm.

    Source: CLoVE, Theorem A.9, the condition of Kumar and Kannan (2010).
    """
    sizes, rows = np.bincount(clusters), np.arange(len(vectors))
    norm = float(np.linalg.norm(vectors - centres[clusters], 2))
    far = cdist(vectors, centres)
    asked = len(centres) * (1 / sizes[clusters][:, None] + 1 / sizes) * norm
    ratio = (far - far[rows, clusters][:, None]) / asked
    ratio[rows, clusters] = np.inf
    return norm, float(ratio.min())


def theory(case: Case) -> Iterator[Row]:
    """Return the conditions of recovery in one round.

    Source: CLoVE, Theorems 4.1, 4.2 and A.9.
    """
    s = case.settings
    sizes, clusters, k, models, true = case.sizes, case.clusters, case.num_clusters, case.models, case.true_models
    n, roots = float(sizes.min()), np.sqrt(case.losses())
    centres = np.stack([roots[clusters == cluster].mean(axis=0) for cluster in range(k)])
    delta = lemma = widest = None
    means = "centres: means of clusters' clients"
    if true is None or case.run.task.loss != "squared_error" or true.shape[1] != models.shape[1]:
        reason = NOT_KNOWN if true is None else OF_LINEAR
        yield row("Delta, sigma, norms, orthonormal models, bounds", None, reason)
    else:
        d, noise, delta = true.shape[1], float(case.option("noise", 0.0)), round(float(pdist(true).min()), 6)
        if case.option("covariance_spread", 1.0) == 1 and case.option("features", "") != "random":
            centres, means = np.sqrt(np.square(cdist(true, models)) + noise**2), "centres of the true models"
        lemma = delta / math.sqrt(4 + noise**2)
        widest = math.sqrt(len(models) * (9 + noise**2) / (2 * n) * len(sizes))
        norms = float(np.abs(np.linalg.norm(true, axis=1) - 1).max())
        apart = float(np.abs(models @ models.T - np.eye(len(models))).max())
        # rho / (rho + 1) with rho = Delta^2 / sigma^2.
        enough = float(np.bincount(clusters, sizes).min()) * (delta**2 / (delta**2 + noise**2)) ** 2
        yield row("true models' norms, distance from 1", norms, "App. A.1", "at most", 1e-3)
        yield row("sigma, noise", noise, "App. A.1: far below 1", "at most", 0.1)
        yield row("Delta, least distance of true models", delta, "Sec. 4: close to 1", "at least", 0.5)
        yield row("initial models and probes, N", len(models), "Lemma A.1: N = d", "exactly", d)
        yield row("products of initial models, from I", apart, "Lemma A.1: orthonormal", "at most", 1e-3)
        yield row("n_k m_k (rho / (rho + 1))^2", enough, "Assumption A.15, far above", "at least", math.log(k**2))
    norm, margin = proximity(roots, centres, clusters)
    yield row("square roots of losses (1: yes)", float(s.square_root), "Remark A.12", "exactly", 1)
    yield row("separation of centres", float(pdist(centres).min()), f"Lemma A.1; {means}", "at least", lemma)
    yield row("norm of centred loss vectors", norm, "Lemma A.7 without polylog(M)", "at most", widest)
    yield row("proximity: largest c'", margin, "Theorem A.9, whose c' is large", "at least", 1)
    size = k**4 * models.shape[1] / (len(sizes) * n)
    yield row("d K^4 / (n M)", size, "Eq. (7): far below 1", "at most", 1)
    yield from case.recovery("Theorem 4.1", 1 if case.run.first_round == "evaluate" else 2)
    near = None if delta is None else delta / 4
    yield row("models' distance at the end", case.error, "Delta/4: proximal", "at most", near)
