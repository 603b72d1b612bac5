"""Random intercepts by empirical Bayes: the spread of the clients' true offsets, and each one shrunk by it."""

import numpy as np

from florets.strategies.core import FloatArray

_HALVINGS = 200
NO_INFORMATION = 1e30
"""Variance from which on an estimate says nothing."""


def between_variance(estimates: FloatArray, variances: FloatArray) -> float:
    """Return the variance tau^2 of true offsets around 0, of which estimates (m,) with variances (m,) are known.

    It solves sum b_i^2 / (v_i + tau^2) = m, or is 0 where the estimates are no further from 0 than their variances
    say. An estimate without information does not count.

    Source: Paule and Mandel 1982, as in DerSimonian and Kacker 2007 (Contemporary Clinical Trials 28).
    Deviation: the mean of the true offsets is 0 and not estimated, because the common model holds it; so the sum is
    compared with m, and not with m - 1.
    """
    known = variances < NO_INFORMATION
    squares, spread = np.square(estimates[known]), variances[known]
    if not known.any() or not squares.any():
        return 0.0
    # With a variance of tau^2 alone the sum would be m there, so the solution is not above.
    low, high = 0.0, float(squares.mean())

    def excess(tau2: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(squares > 0, squares / (spread + tau2), 0.0).sum()) - len(squares)

    if excess(0.0) <= 0:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def shrunk(estimates: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the offsets (m,): tau^2 / (tau^2 + v_i) b_i, the best linear predictions where tau^2 is exact."""
    tau2 = between_variance(estimates, variances)
    if tau2 == 0:
        return np.zeros(len(estimates))
    found: FloatArray = tau2 / (tau2 + variances) * estimates
    return found


def residual_variance(variances: FloatArray, counts: FloatArray) -> float:
    """Return the variance of a residual within clients, pooled over them; infinite where no client has two records.

    Parameters
    ----------
    variances
        Of each client's residuals around their mean (m,), with n - 1.
    counts
        Records n of each (m,).
    """
    freedom = counts - 1
    return float(freedom @ variances / freedom.sum()) if freedom.sum() > 0 else np.inf
