"""Turn the participants' updates into the next models.

Sums are taken in float64, row after row: rows come in the order of client keys, so equal replies give equal
bits, and one model gives the same bits by every path.
"""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray

WEIGHTINGS = ("examples", "uniform", "all_participants")
OPTIMIZERS = ("sgd", "adam")

ADAM_EPSILON = 1e-8


def average_models(
    bank: FloatArray,
    updates: FloatArray,
    assignment: IntArray,
    weights: FloatArray,
    weighting: str,
    integers: BoolArray,
) -> FloatArray:
    """Average the updates of each model.

    Parameters
    ----------
    bank : (K, R) float64
        The models that were sent. Not modified.
    updates : (P, R) float64
        The models that came back, P may be 0.
    assignment : (P,) int64
        Model that each participant trained.
    weights : (P,) float64
        Example counts n.
    weighting : str
        ``"examples"``: mean over the group with weights n. ``"uniform"``: plain mean over the group.
        ``"all_participants"``: each change counts n / N with N the sum of n over all participants, whatever model
        they trained, so that a model moves less the smaller its group is.
    integers : (R,) bool
        Entries that are counters: the largest among the members is kept, under every weighting.

    Returns
    -------
    (K, R) float64
        A model without members (or whose members have no examples between them) keeps its bits.

    Raises
    ------
    ValueError
        If `weighting` is unknown.

    Source: CLoVE Alg. 1, line 25 (``examples``); IFCA, model averaging (``uniform``) and the division by all
    participants of its gradient option, taken over to models (``all_participants``).
    """
    factors = _factors(weights, weighting)
    everybody = float(factors.sum())
    result = np.array(bank, dtype=np.float64)
    for model in np.unique(assignment):
        members = np.flatnonzero(assignment == model)
        share = float(factors[members].sum())
        if share <= 0.0:
            continue
        total = _weighted_sum(updates, factors, members)
        if weighting == "all_participants" and everybody > share:
            # theta + sum n_i / N (theta_i - theta), written so that a group of all participants gives
            # the bits of `examples`.
            total += (everybody - share) * result[model]
            share = everybody
        result[model] = total / share
        result[model, integers] = _largest(updates, members, integers)
    return result


def average_gradients(
    gradients: FloatArray, assignment: IntArray, weights: FloatArray, weighting: str, num_models: int
) -> tuple[FloatArray, BoolArray]:
    """Average the gradients of each model.

    Parameters
    ----------
    gradients : (P, R) float64
        Zero where an entry has no gradient (buffers).
    assignment : (P,) int64
    weights : (P,) float64
        Example counts n.
    weighting : str
        ``"examples"``: mean over the group with weights n. ``"uniform"``: plain mean over the group.
        ``"all_participants"``: plain sum over the group, divided by the number of all participants.
    num_models : int
        K: models in the bank.

    Returns
    -------
    gradient : (K, R) float64
        Zero for a model without members.
    members : (K,) bool
        Which models have members.

    Raises
    ------
    ValueError
        If `weighting` is unknown.

    Source: CLoVE Alg. 1, line 26 (``examples``); IFCA Alg. 1, option I (``all_participants``).
    """
    factors = _factors(weights, weighting)
    if weighting == "all_participants":
        factors = np.ones_like(factors)  # As in the IFCA paper, where all clients have equally many examples.
    gradient = np.zeros((num_models, gradients.shape[1]))
    members = np.zeros(num_models, dtype=np.bool_)
    for model in np.unique(assignment):
        group = np.flatnonzero(assignment == model)
        share = float(factors[group].sum())
        if share <= 0.0:
            continue
        divisor = float(len(assignment)) if weighting == "all_participants" else share
        gradient[model] = _weighted_sum(gradients, factors, group) / divisor
        members[model] = True
    return gradient, members


def apply_step(
    bank: FloatArray, gradient: FloatArray, members: BoolArray, learning_rate: float, optimizer: str
) -> FloatArray:
    """Take one step of the server's optimiser on every model that has members.

    Parameters
    ----------
    bank, gradient : (K, R) float64
        Not modified.
    members : (K,) bool
        Models without members keep their bits.
    learning_rate : float
    optimizer : str
        ``"sgd"``: theta - gamma g. ``"adam"``: the first step of a freshly built Adam, theta - gamma g /
        (|g| + 1e-8), which is close to gamma times the sign.

    Returns
    -------
    (K, R) float64

    Raises
    ------
    ValueError
        If `optimizer` is unknown.

    Source: CLoVE Alg. 1, line 26.
    Deviation: ``"adam"`` is what the published code does instead; the default is the paper's plain step.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"server optimizer {optimizer!r} is unknown: choose one of {', '.join(OPTIMIZERS)}.")
    direction = gradient if optimizer == "sgd" else gradient / (np.abs(gradient) + ADAM_EPSILON)
    stepped: FloatArray = np.where(members[:, np.newaxis], bank - learning_rate * direction, bank)
    return stepped


def _factors(weights: FloatArray, weighting: str) -> FloatArray:
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting {weighting!r} is unknown: choose one of {', '.join(WEIGHTINGS)}.")
    return np.ones(len(weights)) if weighting == "uniform" else np.asarray(weights, dtype=np.float64)


def _weighted_sum(rows: FloatArray, factors: FloatArray, members: IntArray) -> FloatArray:
    # One row after the other: a matrix product would leave the order of summation to the BLAS library.
    total = np.zeros(rows.shape[1])
    for member in members:
        total += factors[member] * rows[member]
    return total


def _largest(rows: FloatArray, members: IntArray, entries: BoolArray) -> FloatArray:
    largest: FloatArray = rows[np.ix_(members, np.flatnonzero(entries))].max(axis=0)
    return largest
