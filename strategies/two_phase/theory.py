"""Theory of two-phase mixed regression: Theorems 1 to 3."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.spatial.distance import pdist

from florets.strategies.base.theory import FAILS, NOT_KNOWN, OF_LINEAR, Case, Row, row
from florets.strategies.core import IntArray
from florets.strategies.two_phase.moment_algebra import num_anchors

EPSILON = 0.05
"""Distance of the coarse models from the true ones, in distances of these, that the rows of phase 1 are for."""


def chi_squared(sizes: IntArray) -> float:
    """Return the chi-squared divergence of the clients' shares of all samples from equal shares.

    Source: mixed regression, Sec. IV-B, quantity skewness.
    """
    return float(len(sizes) * np.square(sizes / sizes.sum() - 1 / len(sizes)).sum())


def stability(gamma: float, steps: int, proximal: bool = False) -> float:
    """Return kappa of `steps` local steps, or of the proximal step; infinite of steps with gamma of 1 or more.

    Source: mixed regression, Sec. IV-B: gamma s / (1 - (1 - gamma)^s), printed with gamma^s, which would be below 1.
    """
    if proximal:
        return 1 + gamma
    return gamma * steps / (1 - (1 - gamma) ** steps) if gamma < 1 else math.inf


def clustering_error(sizes: IntArray, d: int, k: int, alpha: float, signal: float) -> tuple[float, float]:
    """Return both parts of nu: the mean of p_e(n_i) over samples, and the uniform deviation; `signal` is Delta/sigma.

    Source: mixed regression, Eq. (9), with c = C = 1.
    """
    wrong = 4 * k * np.exp(-sizes * alpha**2 * min(1.0, signal**2) ** 2)
    deviation = math.sqrt(d * k * math.log(k) / len(sizes) * (chi_squared(sizes) + 1))
    return float((sizes * wrong).sum() / sizes.sum()), deviation


def theory(case: Case) -> Iterator[Row]:
    """Return what phase 1 and phase 2 need, and what they promise.

    Source: mixed regression, Theorems 1 to 3.
    """
    s = case.settings
    train, sizes, k, loss = case.run.train, case.sizes, case.num_clusters, case.run.task.loss
    total, smallest = float(sizes.sum()), float(np.bincount(case.clusters, sizes).min())
    p_min, rho = float(np.bincount(case.clusters).min() / len(sizes)), smallest / total
    anchors = num_anchors(k if case.run.k == "auto" else case.run.k) if s.anchors == "auto" else s.anchors
    yield row("p_min, share of the smallest cluster", p_min, "Sec. III, as drawn")
    yield row("anchors m_H", anchors, "below Theorem 1, delta = 0.05", "at least", math.log(k / FAILS) / p_min)
    yield row("chi squared(n)", chi_squared(sizes), "Sec. IV-B")
    yield row("rho", rho, "Theorem 2")
    true = case.true_models
    if true is None or "squared_error" not in loss or train.optimizer != "sgd" or train.momentum:
        yield row("Delta, kappa, nu, bound, m, n_H, T", None, NOT_KNOWN if true is None else OF_LINEAR)
        yield from case.recovery("run")
        return
    d, (alpha, beta), noise = true.shape[1], case.covariance(), float(case.option("noise", 0.0))
    radius, delta = float(np.linalg.norm([*true, case.models[0]], axis=1).max()), float(pdist(true).min())
    yield row("alpha, least eigenvalue of the inputs' covariance", alpha, "Sec. III")
    yield row("beta, largest one", beta, "Sec. III")
    yield row("R, longest true or first model", radius, "Sec. III, Theorem 1")
    yield row("Delta, least distance of true models", delta, "Sec. III")
    unit = beta**8 * (radius**4 + noise**4) * math.log(total) ** 3 / (alpha**12 * delta**4 * EPSILON**4)
    spread = beta * radius / (alpha * EPSILON * delta)
    asked = len(sizes) if s.subspace_clients == "all" else s.subspace_clients
    pairs = int(sizes[sizes >= s.min_anchor_examples].min(initial=sizes.max())) // 2
    moments = 16 * beta**2 / alpha**2 * math.log(2 * spread)
    coarse = next((error for number, error in case.errors if number == s.moment_rounds), None)
    near = min(alpha / 8, math.sqrt(alpha / beta) / 3)
    yield row("epsilon", EPSILON, "Theorems 1 and 2", "at most", near)
    yield row("m, clients asked in a round", asked, "Theorem 1, C = 1", "at least", unit * d / p_min**2)
    yield row("n_H, pairs of an anchor", pairs, "Theorem 1, C = 1; half its samples", "at least", unit * k)
    yield row("T, rounds of phase 1", s.moment_rounds, "Eq. (3)", "at least", moments)
    yield row("distance from true models after phase 1", coarse, "Eq. (5)", "at most", EPSILON * delta)
    proximal = s.local_solver == "fedprox"
    rate = train.learning_rate * (1 if loss == "half_squared_error" else 2)
    gamma = rate * max(float(np.linalg.norm(x, 2) ** 2 / len(x)) for x in case.inputs())
    epochs = train.local_epochs * math.ceil(int(sizes.max()) / train.batch_size)
    steps = 1 if proximal else train.local_steps or max(1, math.ceil(epochs))
    kappa = stability(gamma, steps, proximal)
    wrong, deviation = clustering_error(sizes, d, k, alpha, math.inf if noise == 0 else delta / noise)
    nu = wrong + deviation
    # From 1 on it is no share of clients any more, and nu log(e/nu) falls.
    lost = nu * (1 - math.log(nu)) if nu < 1 else math.inf
    bound = math.sqrt(beta) * noise * kappa / (alpha * rho) * lost
    slow = kappa / (steps * rate * alpha * rho)
    rounds = slow * math.log(delta / nu) if nu < delta else 0.0
    most = 1 / (beta * steps)
    yield row("eta, learning rate", rate, "Theorem 2, c_0 = 1", "at most", most)
    yield row("gamma", gamma, "Sec. IV-B", "at most", 1)
    yield row("kappa, stability of local steps", kappa, "Sec. IV-B")
    yield row("samples of the smallest cluster", smallest, "Theorem 2, C_0 = 1", "at least", d)
    yield row("nu: mean error of clients' choices", wrong, "Eq. (9), c = 1")
    yield row("nu: uniform deviation", deviation, "Eq. (9), C = 1")
    yield row("nu log(e/nu)", lost, "Theorem 2, c_1 = 1", "at most", rho * alpha / (kappa * beta))
    yield row("T', rounds of phase 2", case.run.num_rounds, "Theorem 3, C = 1", "at least", rounds)
    shrinks, fell = 1 - 1 / slow, _shrinks(case.errors, s.moment_rounds)
    yield row("error over that of the round before", fell, "Eq. (8), c_2 = 1", "at most", shrinks)
    yield row("distance from true models at the end", case.error, "Eq. (17), C = 1", "at most", bound)
    yield from case.recovery("run")


def _shrinks(errors: Sequence[tuple[int, float]], before: int) -> float | None:
    """Return by which factor a round after phase 1 lowers the error, while that is over twice its last value."""
    falling = [(number, error) for number, error in errors if number >= before and error > 2 * errors[-1][1]]
    if len(falling) < 2:
        return None
    (begin, high), (end, low) = falling[0], falling[-1]
    return float((low / high) ** (1 / (end - begin)))
