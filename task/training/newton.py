"""Second-order local training of linear models: gradient and Hessian, and the damped Newton step that they give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.training.linear import CURVATURES, LinearNames
from florets.task.training.losses import count, record, recording
from florets.task.training.settings import Training

FloatArray = NDArray[np.float64]
MOST_PARAMETERS = 1024
"""Parameters up to which a Hessian is taken: its size is their square."""
_HALVINGS, _LEAST = 30, 1e-9
"""Times that a step is halved, and the curvature that every direction gets so that a system can be solved."""


@dataclass(frozen=True)
class SecondOrder:
    """A linear model's loss near its parameters, weights (C, d) by row, then biases (C,), as sums over records."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def parameters_of(names: LinearNames, state: Mapping[str, NDArray[Any]]) -> FloatArray:
    """Return a linear model's parameters (P,), in the order of `SecondOrder`."""
    weight = np.asarray(state[names.weight], dtype=np.float64).ravel()
    return weight if names.bias is None else np.concatenate([weight, np.asarray(state[names.bias], np.float64)])


def second_order(
    parameters: FloatArray,
    x: NDArray[Any],
    y: NDArray[Any],
    loss: str,
    with_bias: bool = True,
    weights: NDArray[Any] | None = None,
    offsets: NDArray[Any] | None = None,
) -> SecondOrder:
    """Return value, gradient and Hessian of a linear model's loss; records have `weights` (n,), `offsets` (n, C)."""
    inputs = _with_ones(x, with_bias)
    worth = np.ones(len(inputs)) if weights is None else np.asarray(weights, dtype=np.float64)
    table = _as_table(parameters, inputs.shape[1], with_bias)
    outputs = inputs @ table.T + (0.0 if offsets is None else offsets)
    width = len(table)
    if loss in CURVATURES:
        residuals = outputs[:, 0] - np.asarray(y, dtype=np.float64)
        hessian = inputs.T @ (worth[:, None] * inputs)
        value = float(worth @ np.square(residuals)) / 2
        return SecondOrder(value, inputs.T @ (worth * residuals), hessian)
    labels = np.asarray(y, dtype=np.int64)
    value, shares = _cross_entropy(outputs, labels, worth)
    slopes = shares.copy()
    slopes[np.arange(len(labels)), labels] -= 1
    gradient = (worth[:, None] * slopes).T @ inputs
    size = inputs.shape[1]
    blocks = np.empty((width, size, width, size))
    for a in range(width):
        for b in range(a, width):
            curvature = worth * shares[:, a] * ((a == b) - shares[:, b])
            block = inputs.T @ (curvature[:, None] * inputs)
            blocks[a, :, b, :] = block
            blocks[b, :, a, :] = block.T
    order = _order(width, size, with_bias)
    hessian = blocks.reshape(width * size, width * size)[np.ix_(order, order)]
    return SecondOrder(value, gradient.ravel()[order], hessian)


def newton_update(
    names: LinearNames,
    state: Mapping[str, NDArray[Any]],
    x: NDArray[Any],
    y: NDArray[Any],
    loss: str,
    training: Training,
    proximal_mu: float = 0.0,
    weights: NDArray[Any] | None = None,
) -> tuple[dict[str, NDArray[Any]], float, SecondOrder]:
    """Return a linear model after damped Newton steps, the mean loss before them, and the terms at the start.

    A step that does not lower the sum of the losses, with ridge and FedProx's term, is halved until it does.

    Source: iteratively reweighted least squares (Green 1984); step halving as in R's `glm.fit`.
    """
    with_bias, start = names.bias is not None, parameters_of(names, state)
    shape = state[names.weight].shape
    unit = len(y) / CURVATURES.get(loss, 1.0)
    ridge = training.penalty(np.arange(len(start)) >= shape[0] * shape[1])
    proximal = proximal_mu * unit
    terms = first = second_order(start, x, y, loss, with_bias, weights)
    mean, current = first.value / unit, start
    for _ in range(training.num_steps(1)):
        count(gradients=len(y))
        if recording():
            record(terms.value / unit)
        change = current - start
        value = terms.value + ridge @ np.square(current) / 2 + proximal * change @ change / 2
        slope = terms.gradient + ridge * current + proximal * change
        step = -solved(terms.hessian, ridge + proximal, slope)
        for _ in range(_HALVINGS):
            following = current + step
            change = following - start
            penalties = ridge @ np.square(following) / 2 + proximal * change @ change / 2
            if value_of(following, x, y, loss, with_bias, weights) + penalties <= value:
                current = following
                break
            step = step / 2
        else:
            break
        if loss in CURVATURES:
            break
        if training.num_steps(1) > 1:
            terms = second_order(current, x, y, loss, with_bias, weights)
    weight, bias = np.split(current.astype(np.float32), [shape[0] * shape[1]])
    arrays = {names.weight: weight.reshape(shape)} | ({} if names.bias is None else {names.bias: bias})
    return arrays, mean, first


def solved(hessian: FloatArray, ridge: FloatArray, slope: FloatArray) -> FloatArray:
    """Return (H + diag(ridge))^-1 slope; directions without curvature get a little."""
    least = _LEAST * (1.0 + float(np.diagonal(hessian).max(initial=0.0)))
    found: FloatArray = np.linalg.solve(hessian + np.diag(ridge + least), slope).astype(np.float64)
    return found


def value_of(
    parameters: FloatArray, x: NDArray[Any], y: NDArray[Any], loss: str, with_bias: bool, weights: Any = None
) -> float:
    """Return the value of `second_order` alone."""
    inputs = _with_ones(x, with_bias)
    worth = np.ones(len(inputs)) if weights is None else np.asarray(weights, dtype=np.float64)
    outputs = inputs @ _as_table(parameters, inputs.shape[1], with_bias).T
    if loss in CURVATURES:
        return float(worth @ np.square(outputs[:, 0] - np.asarray(y, dtype=np.float64))) / 2
    return _cross_entropy(outputs, np.asarray(y, dtype=np.int64), worth)[0]


def _cross_entropy(outputs: FloatArray, labels: NDArray[np.int64], worth: FloatArray) -> tuple[float, FloatArray]:
    highest = outputs.max(axis=1, keepdims=True)
    odds = np.exp(outputs - highest)
    totals = odds.sum(axis=1, keepdims=True)
    each = np.log(totals[:, 0]) + highest[:, 0] - outputs[np.arange(len(labels)), labels]
    return float(worth @ each), odds / totals


def _with_ones(x: NDArray[Any], with_bias: bool) -> FloatArray:
    inputs = np.asarray(x, dtype=np.float64)
    return np.hstack([inputs, np.ones((len(inputs), 1))]) if with_bias else inputs


def _as_table(parameters: FloatArray, size: int, with_bias: bool) -> FloatArray:
    """Return parameters (P,) as coefficients (C, d + 1), the bias last."""
    if not with_bias:
        return parameters.reshape(-1, size)
    width = len(parameters) // size
    return np.hstack([parameters[:-width].reshape(width, size - 1), parameters[-width:, None]])


def _order(width: int, size: int, with_bias: bool) -> NDArray[np.int64]:
    """Return the places of the parameters (P,) in coefficients (C, d + 1), row by row."""
    places = np.arange(width * size).reshape(width, size)
    return np.concatenate([places[:, :-1].ravel(), places[:, -1]]) if with_bias else places.ravel()
