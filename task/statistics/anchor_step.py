"""One step of an anchor: along the direction in its subspace in which its own residual is largest."""

from dataclasses import dataclass

import numpy as np

from florets.task.statistics.moments import Float64, Pairing


@dataclass(frozen=True)
class StepSettings:
    """Size of the step.

    Parameters
    ----------
    alpha, beta
        Bounds on the covariance of the inputs, both 1 for standard normal inputs.
    stop_below
        Residual sigma up to which the anchor stays where it is; negative: never.

    Source: mixed regression, Phase 1, l. 12 and 13 (stop_below is epsilon alpha Delta / sqrt(2)).
    """

    alpha: float = 1.0
    beta: float = 1.0
    stop_below: float = -1.0


def anchor_step(projected: Float64, pairing: Pairing, settings: StepSettings) -> tuple[Float64, float]:
    """Return the step in the coordinates of the basis, and the size of the residual.

    Parameters
    ----------
    projected : (n, k) float64
        The anchor's own moments, projected on its basis.
    pairing
        See `moments.LocalMoments`; ``single`` takes n/2 disjoint pairs here, as the paper does.

    Returns
    -------
    step : (k,) float64
        beta_hat alpha sigma / (2 beta^2), or zero where the anchor has arrived.
    residual : float
        sigma, the root of A's first singular value, at least 0.

    Source: mixed regression, Phase 1, l. 11 to 15, and equation (2).
    Deviation: sigma^2 is beta_hat^T A beta_hat in the paper. The two are one wherever A is symmetric and that form is
    not negative. But a sample's A is indefinite, and a negative form would read as an anchor that has arrived.
    The singular vector's sign, which A leaves open, is such that its product with the mean moment is not negative;
    without a rule the estimates diverge. The k x k problem is solved exactly, not by T2 power steps. Equation (2)
    asks for points that are fresh in every round; as in the paper's experiments (Sec. V), the anchor's own examples
    are used again.
    """
    moments = moment_matrix(projected, pairing)
    vectors, values, _ = np.linalg.svd(moments)
    direction: Float64 = vectors[:, 0]
    if direction @ projected.mean(axis=0) < 0:
        direction = -direction
    residual = float(values[0]) ** 0.5
    if residual <= settings.stop_below:
        return np.zeros_like(direction), residual
    return direction * settings.alpha * residual / (2 * settings.beta**2), residual


def moment_matrix(projected: Float64, pairing: Pairing) -> Float64:
    """Return A (k, k), the mean over pairs of the outer products of projected moments (n, k)."""
    count, half = len(projected), len(projected) // 2
    if pairing == "all":
        total = projected.sum(axis=0)
        pairs: Float64 = (np.outer(total, total) - projected.T @ projected) / (count * (count - 1))
        return pairs
    if pairing == "halves":
        return np.outer(projected[:half].mean(axis=0), projected[half:].mean(axis=0))
    disjoint: Float64 = projected[:half].T @ projected[half : 2 * half] / half
    return disjoint
