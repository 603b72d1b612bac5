"""Second-order local training of linear models: gradient and Hessian, and the damped Newton step that they give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.training.linear import CURVATURES, LinearNames
from florets.task.training.losses import count

FloatArray = NDArray[np.float64]
BIAS_RIDGE = 0.01
"""Fraction of the ridge that a bias gets: enough to keep it finite where a client has one class alone."""
_HALVINGS = 30


@dataclass(frozen=True)
class SecondOrder:
    """A linear model's loss on a client's data near its parameters (P,), as sums over records, in float64.

    The loss is a negative log-likelihood: half the squared error, or the cross-entropy. Parameters are in the order
    of the layout: weights (C, d), row by row, then biases (C,), where the layer has them.

    Attributes
    ----------
    value
        The loss, summed over records.
    gradient
        (P,).
    hessian
        (P, P), symmetric and positive semi-definite.
    """

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
) -> SecondOrder:
    """Return value, gradient and Hessian of a linear model's loss.

    Parameters
    ----------
    parameters : (P,)
        See `SecondOrder`. With squared errors there is one output.
    x : (n, d)
        Inputs.
    y : (n,)
        Values, or labels from 0.
    weights : (n,), optional
        Of the records.
    """
    inputs = _with_ones(x, with_bias)
    worth = np.ones(len(inputs)) if weights is None else np.asarray(weights, dtype=np.float64)
    table = _as_table(parameters, inputs.shape[1], with_bias)
    outputs = inputs @ table.T
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
