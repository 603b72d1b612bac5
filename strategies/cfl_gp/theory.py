"""Theory of CFL-GP: the gradient gap, the gradients' noise, and the rounds of Theorem 1."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import pdist

from florets.strategies.base.theory import FAILS, Case, Row, row
from florets.strategies.core import FloatArray


def gradient_gap(gradients: FloatArray) -> float:
    """Return the least distance between two clusters' gradients (models, clusters, R) on one model.

    Source: CFL-GP, Assumption 3, for sequences of one model.
    """
    return float(min(pdist(of_model).min() for of_model in gradients))


def theory(case: Case) -> Iterator[Row]:
    """Return the gap and the noise of gradients, and the rounds that recovery needs.

    Source: CFL-GP, Assumptions 1 to 3, Theorem 1.
    """
    run, s, sizes, clusters, k = case.run, case.settings, case.sizes, case.clusters, case.num_clusters
    least, batch = int(np.bincount(clusters).min()), run.gradient_batch or run.train.batch_size
    own, whole = [clusters == cluster for cluster in range(k)], case.gradients(None)
    means = np.stack([np.average(whole[:, rows], axis=1, weights=sizes[rows]) for rows in own], axis=1)
    apart = np.square((whole if batch == "full" else case.gradients(batch)) - means[:, clusters]).sum(axis=2)
    noise = max(float(apart[:, rows].mean(axis=1).max()) for rows in own)
    gap, n = gradient_gap(means), float(sizes.mean()) if batch == "full" else batch
    rounds = k**2 * s.period * len(sizes) ** 2 * noise / (FAILS**2 * gap**2 * least) + k * s.period + 1
    of = "initial models" + ("; the run compares model changes" if run.averaging == "models" else "")
    yield row("C rho, clients of the smallest cluster", least, "Assumption 1, its first part", "at least", 2)
    yield row("Delta_g, least gap of clusters' gradients", gap, f"Assumption 3: above 0; {of}")
    yield row("v / sqrt(b), noise of a client's gradient", math.sqrt(noise), f"Assumption 2; {of}")
    yield row("v", math.sqrt(noise * n), f"Assumption 2; b = {n:g}")
    yield row("rounds", run.num_rounds, "Theorem 1, lambda = 1, delta = 0.05", "at least", rounds)
    yield from case.recovery("Lemma 1: the share of wrong clients falls as 1/t")
