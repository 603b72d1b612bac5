"""Turn the participants' updates into the next models.

Sums are taken in float64, row after row: rows come in the order of client keys, so equal replies give equal
bits, and one model gives the same bits by every path.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.robust import Robust
from florets.strategies.core.rows import Columns, Rows, add_weighted

WEIGHTINGS = ("examples", "uniform", "all_participants")

ADAM_EPSILON = 1e-8
_CURVATURE = 0.25
"""Of the cross-entropy by an output, at most."""


def average_models(
    bank: FloatArray,
    updates: Rows,
    assignment: IntArray,
    weights: FloatArray,
    weighting: str,
    integers: BoolArray,
    everybody: float | None = None,
    robust: Robust | None = None,
) -> FloatArray:
    """Return the next bank (K, R): each model's average update; one without members keeps its bits.

    `updates` (P, R) are the models that came back, of those in `assignment` (P,), with example counts `weights` (P,).
    `weighting` is ``"examples"``, ``"uniform"``, or ``"all_participants"``: each change counts n / N with N the
    examples of all participants, `everybody` where `updates` are a part of them. Of counters, `integers` (R,), the
    largest among the members is kept, or the median with `robust`, which takes the place of each group's mean.

    Source: CLoVE Alg. 1, line 25 (``examples``); IFCA, model averaging (``uniform``) and the division by all
    participants of its gradient option, taken over to models (``all_participants``).
    """
    factors = _factors(weights, weighting)
    everybody = float(factors.sum()) if everybody is None else everybody
    result = np.array(bank, dtype=np.float64)
    for model, members, share, total in _sums(updates, assignment, factors, result, robust):
        if weighting == "all_participants" and everybody > share:
            # theta + sum n_i / N (theta_i - theta), written so that a group of all participants gives
            # the bits of `examples`.
            total += (everybody - share) * result[model]
            share = everybody
        np.divide(total, share, out=result[model])
        del total
        if integers.any():
            counters = Columns(updates, integers)
            result[model, integers] = (_largest if robust is None else _middle)(counters, members)
    return result


def average_gradients(
    gradients: Rows,
    assignment: IntArray,
    weights: FloatArray,
    weighting: str,
    shape: tuple[int, int],
    robust: Robust | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Return the average (K, R) of each model's gradients (P, R), and which models have any (K,).

    See `average_models`, but for ``"all_participants"``: the plain sum over the group, divided by the number of all
    participants.

    Source: CLoVE Alg. 1, line 26 (``examples``); IFCA Alg. 1, option I (``all_participants``).
    """
    factors = _factors(weights, weighting)
    if weighting == "all_participants":
        factors = np.ones_like(factors)  # As in the IFCA paper, where all clients have equally many examples.
    gradient, members = np.zeros(shape), np.zeros(shape[0], dtype=np.bool_)
    for model, _, share, total in _sums(gradients, assignment, factors, gradient, robust):
        np.divide(total, len(assignment) if weighting == "all_participants" else share, out=gradient[model])
        members[model] = True
        del total
    return gradient, members


def apply_step(
    bank: FloatArray, gradient: FloatArray, members: BoolArray, learning_rate: float, optimizer: str
) -> FloatArray:
    """Return the bank (K, R) after one step of the server's optimiser; models without members keep their bits.

    ``"sgd"`` is theta - gamma g, ``"adam"`` the first step of a freshly built Adam, theta - gamma g / (|g| + 1e-8).

    Source: CLoVE Alg. 1, line 26.
    Deviation: ``"adam"`` is what the published code does instead; the default is the paper's plain step.
    """
    stepped: FloatArray = np.array(bank, dtype=np.float64)
    for model in np.flatnonzero(members):
        own = gradient[model]
        stepped[model] -= learning_rate * (own if optimizer == "sgd" else own / (np.abs(own) + ADAM_EPSILON))
    return stepped


def pooled_step(
    model: FloatArray,
    gradients: Sequence[FloatArray],
    hessians: Sequence[FloatArray],
    examples: FloatArray,
    weights: FloatArray,
    ridge: FloatArray,
    *,
    is_quadratic: bool,
) -> FloatArray:
    """Return the Newton step (R,) of a linear model on the sum of its clients' losses and a ridge (R,).

    `gradients` and `hessians` are sums over each client's `examples` (P,), which count as `weights` (P,). Of a loss
    that is not `is_quadratic` the step is damped by log(1 + d) / d, where d is about the root mean square of how far
    it moves the outputs.

    Source: Sun and Tran-Dinh 2019 (Mathematical Programming 178), damped step of generalised self-concordant losses.
    Deviation: d is a mean over the records and no maximum, which no sum of the clients' knows.
    """
    scales = weights / examples * (examples.sum() / weights.sum())
    slope, curvature = ridge * model, np.diag(ridge)
    hessian = np.zeros_like(curvature)
    for scale, gradient, own in zip(scales, gradients, hessians, strict=True):
        slope = slope + scale * gradient
        hessian += scale * own
    curvature += hessian
    least = 1e-9 * (1.0 + float(np.diagonal(hessian).max(initial=0.0)))
    step = -np.linalg.solve(curvature + least * np.eye(len(model)), slope).astype(np.float64)
    moved = math.sqrt(max(float(step @ hessian @ step), 0.0) / (_CURVATURE * float(examples.sum())))
    return step if is_quadratic or moved == 0 else step * (math.log1p(moved) / moved)


def _factors(weights: FloatArray, weighting: str) -> FloatArray:
    return np.ones(len(weights)) if weighting == "uniform" else np.asarray(weights, dtype=np.float64)


def _sums(
    rows: Rows, assignment: IntArray, factors: FloatArray, start: FloatArray, robust: Robust | None
) -> Iterator[tuple[int, IntArray, float, FloatArray]]:
    """Yield each model with its members, the sum of their factors, and that of their rows times these."""
    for model in np.unique(assignment).tolist():
        members = np.flatnonzero(assignment == model)
        share = float(factors[members].sum())
        if share <= 0.0:
            continue
        if robust is None:
            total = np.zeros(start.shape[1])
            add_weighted(rows, factors[members], members, total)
        else:
            total = robust.mean(members, factors[members], start[model]) * share
        yield model, members, share, total
        # Of large models it would lie beside the members' vectors that are read next.
        del total


def _largest(rows: Rows, members: IntArray) -> FloatArray:
    largest: FloatArray = np.max([rows[int(member)] for member in members], axis=0)
    return largest


def _middle(rows: Rows, members: IntArray) -> FloatArray:
    ordered = np.sort([rows[int(member)] for member in members], axis=0)
    return np.asarray(ordered[(len(members) - 1) // 2])
