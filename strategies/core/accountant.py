"""Epsilon and delta of Gaussian releases, alone and composed, exactly."""

import math
from collections.abc import Callable

EXACT = 1e-12
"""Relative width at which a bisection stops; the safe end is returned."""


def usual_delta(clients: int) -> float:
    """Return the delta of a run that names none: 1 / n^2, and 1 / (10 n) of less than ten clients."""
    return 1 / (clients * max(clients, 10))


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least delta for which a release of level mu is (epsilon, delta)-differentially private.

    A sum of sensitivity 1 with noise of standard deviation z has level 1 / z; levels mu_i have together sqrt(sum
    mu_i^2).

    Source: Balle and Wang 2018, Th. 8; Dong, Roth and Su 2022, Cor. 2.13 and 3.3 (composition); Smith and Thakurta
    2022 (levels that depend on earlier releases).
    """
    from scipy.special import log_ndtr

    if mu <= 0.0:
        return 0.0
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return max(float(math.exp(first) - math.exp(min(epsilon + second, first))), 0.0)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon, to a relative 1e-12, for which a release of level mu is (epsilon, delta)-private."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    return _bracket(lambda epsilon: delta_of(mu, epsilon) > delta)[1]


def level_of(epsilon: float, delta: float) -> float:
    """Return the largest level mu, to a relative 1e-12, that is (epsilon, delta)-private."""
    return _bracket(lambda mu: delta_of(mu, epsilon) <= delta)[0]


def _bracket(is_below: Callable[[float], bool]) -> tuple[float, float]:
    """Return two numbers, to a relative 1e-12, of which the first alone is below the one that is searched."""
    low, high = 0.0, 1.0
    while is_below(high):
        low, high = high, 2 * high
    while high - low > EXACT * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high
