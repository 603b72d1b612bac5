"""Average models that every participant trained all of, each as far as it thought it belonged to it."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray


def average_soft(
    bank: FloatArray,
    updates: FloatArray,
    memberships: FloatArray,
    weights: FloatArray,
    weighting: str,
    integers: BoolArray,
) -> FloatArray:
    """Return the next models (K, R).

    Parameters
    ----------
    bank : (K, R) float64
        The models that were sent. Not modified.
    updates : (P, K, R) float64
        All models as each participant returned them: model l trained on the participant's loss times its weight of l.
    memberships : (P, K) float64
        Those weights, lambda; each row sums to 1.
    weights : (P,) float64
        Example counts n.
    weighting : str
        ``"all_participants"``: theta_l = sum_i n_i / N theta_il, N over all participants. ``"examples"``: the same
        change, divided by sum_i n_i lambda_il instead, the examples that belong to the model. With weights of
        0 and 1 both are `aggregate.average_models`.
    integers : (R,) bool
        Entries that are counters: the largest among the participants is kept.

    Source: mixed regression, Phase 2, l. 9 (``all_participants``).
    """
    result = np.array(bank, dtype=np.float64)
    shares = weights[:, np.newaxis] * (memberships if weighting == "examples" else np.ones_like(memberships))
    totals = shares.sum(axis=0)
    change = np.zeros_like(result)
    # The change carries lambda already, in the participant's own steps.
    for update, weight in zip(updates, weights, strict=True):
        change += weight * (update - bank)
    trained = totals > 0
    result[trained] += change[trained] / totals[trained, np.newaxis]
    result[:, integers] = updates[:, :, integers].max(axis=0)
    return result
