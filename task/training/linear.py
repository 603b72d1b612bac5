"""Losses and full-batch steps of a linear model in NumPy, whose calls cost a twentieth of torch's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from florets.task.training.losses import Evaluated, count, record, recording
from florets.task.training.scores import scores_of
from florets.task.training.settings import Training

Float32 = NDArray[np.float32]

# Losses of one output, and the factor of their derivative.
CURVATURES = {"squared_error": 2.0, "half_squared_error": 1.0}

# A model that diverged overflows: its loss is infinite or no number, and whoever reports it says so.
may_diverge = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True)
class LinearNames:
    """Names of a linear model's entries in its state dict; `bias` is None where it has none."""

    weight: str
    bias: str | None


@dataclass(frozen=True)
class LinearModels:
    """K linear models: weights float32 (K, C, d), biases float32 (K, C) or None."""

    weight: Float32
    bias: Float32 | None

    @classmethod
    def of(cls, states: Sequence[Mapping[str, NDArray[Any]]], names: LinearNames) -> "LinearModels":
        """Stack models, given as name -> array."""
        bias = None if names.bias is None else np.stack([state[names.bias] for state in states])
        return cls(np.stack([state[names.weight] for state in states]), bias)

    def outputs(self, x: Float32) -> Float32:
        """Return what the models say of inputs (n, d), as (n, K, C): one product for all models."""
        count, width, _ = self.weight.shape
        product = x @ self.weight.reshape(count * width, -1).T
        if self.bias is not None:
            product += self.bias.ravel()
        return product.reshape(len(x), count, width)


def linear_names(module: nn.Module, loss: str) -> LinearNames | None:
    """Return the entries' names of one linear layer, with squared errors of one output or cross-entropy."""
    if type(module) is not nn.Sequential or len(module) != 2 or type(module[0]) is not nn.Flatten:
        return None
    layer = module[1]
    # Compared by type: a parametrised layer is a subclass, with weights that are computed.
    if type(layer) is not nn.Linear or (loss in CURVATURES and layer.out_features != 1):
        return None
    if loss not in CURVATURES and loss != "cross_entropy":
        return None
    if not all(p.requires_grad and str(p.dtype) == "torch.float32" for p in module.parameters()):
        return None
    return LinearNames("1.weight", "1.bias" if layer.bias is not None else None)


def flat(x: Tensor, y: Tensor) -> tuple[Float32, NDArray[Any]]:
    """Return inputs (n, d), flat, and targets (n,), sharing the tensors' memory where it is in order."""
    return x.flatten(1).numpy(), y.numpy()


@may_diverge
def linear_losses(models: LinearModels, x: Float32, y: NDArray[Any], loss: str) -> NDArray[np.float64]:
    """Return the mean loss of each of K models on all samples (K,); see `losses.loss_vector`."""
    count(losses=len(x) * len(models.weight))
    return _losses(_checked(models.outputs(x)), y, loss)


@may_diverge
def linear_test(models: LinearModels, x: Float32, y: NDArray[Any], loss: str) -> Evaluated:
    """Return the results of the first model, with further scores; see `florets.task.training.losses.evaluated`."""
    outputs = _checked(models.outputs(x))
    accuracy = float(np.mean(outputs[:, 0].argmax(axis=1) == y)) if loss == "cross_entropy" else None
    count(losses=len(x))
    scores = scores_of(outputs[:, 0], y, loss)
    return Evaluated(float(_losses(outputs, y, loss)[0]), accuracy, scores, outputs[:, 0])


@may_diverge
def linear_update(
    names: LinearNames,
    state: Mapping[str, NDArray[Any]],
    x: Float32,
    y: NDArray[Any],
    loss: str,
    training: Training,
    proximal_mu: float = 0.0,
) -> tuple[dict[str, NDArray[Any]], float]:
    """Return a model after steps on all samples, and the mean loss before the last.

    Source: gradient descent on <x, theta> = y (mixed regression, Alg. 2 and Lemma 1) and on multinomial regression.
    """
    rate, mu = np.float32(training.learning_rate), np.float32(proximal_mu)
    start, start_bias = state[names.weight], None if names.bias is None else state[names.bias]
    weight, bias = start.copy(), None if start_bias is None else start_bias.copy()
    outputs = np.empty((len(x), len(weight)), dtype=np.float32)
    count(gradients=training.num_steps(1) * len(x))
    for _ in range(training.num_steps(1)):
        outputs = x @ weight.T
        if bias is not None:
            outputs += bias
        slope = output_slopes(_checked(outputs), y, loss, len(y))
        if recording():
            record(float(_losses(outputs[:, None], y, loss)[0]))
        step = slope.T @ x
        bias_step = slope.sum(axis=0) if bias is not None else None
        if mu:
            step += mu * (weight - start)
        weight -= rate * step
        if bias is not None and bias_step is not None:
            if mu:
                bias_step += mu * (bias - start_bias)
            bias -= rate * bias_step
    arrays = {names.weight: weight} | ({} if bias is None or names.bias is None else {names.bias: bias})
    return arrays, float(_losses(outputs[:, None], y, loss)[0])


def _checked(outputs: Float32) -> Float32:
    if len(outputs) == 0:
        raise ValueError("a loss over no samples is not defined: give every client at least one sample.")
    return outputs


def _losses(outputs: Float32, y: NDArray[Any], loss: str) -> NDArray[np.float64]:
    """Return the mean loss (K,) of outputs (n, K, C)."""
    # What `mean` does, without its five checks of the arguments.
    means: NDArray[np.float64] = np.add.reduce(sample_losses(outputs, y, loss), axis=0, dtype=np.float64) / len(y)
    return means


def sample_losses(outputs: Float32, y: NDArray[Any], loss: str) -> Float32:
    """Return the loss (n, K) of each of the outputs (n, K, C)."""
    losses: Float32
    if loss in CURVATURES:
        losses = outputs[:, :, 0] - y[:, None]
        losses *= losses
        if loss == "half_squared_error":
            losses *= np.float32(0.5)
    else:
        highest = outputs.max(axis=2)
        losses = np.log(np.exp(outputs - highest[:, :, None]).sum(axis=2)) + highest
        losses -= outputs[np.arange(len(y)), :, y]
    return losses


def output_slopes(outputs: Float32, y: NDArray[Any], loss: str, num_samples: int) -> Float32:
    """Return the derivative of the mean loss over so many samples by the outputs (n, C)."""
    if loss in CURVATURES:
        slope: Float32 = outputs - y[:, None]
        slope *= np.float32(CURVATURES[loss] / num_samples)
        return slope
    slope = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    slope /= slope.sum(axis=1, keepdims=True)
    slope[np.arange(len(y)), y] -= 1
    slope /= np.float32(num_samples)
    return slope


def exact_proximal(module: nn.Module, x: Tensor, y: Tensor, loss: str, proximal_mu: float) -> float | None:
    """Move a linear model to argmin L(theta) + mu/2 ||theta - theta_start||^2; return the mean loss at the start.

    None, and nothing is done, of other models and losses. mu is 1 / eta in the paper's terms.

    Source: mixed regression, Phase 2, l. 8 (FedProx-based).
    """
    names = linear_names(module, loss)
    if names is None or loss not in CURVATURES:
        return None
    if len(x) == 0 or proximal_mu <= 0:
        raise ValueError(f"proximal_mu={proximal_mu} on {len(x)} samples: both must be above 0.")
    inputs = x.detach().flatten(1).cpu().numpy().astype(np.float64)
    if names.bias is not None:
        inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
    # In this order, and one output: the weights and the bias are one vector of coefficients.
    parameters = list(module.parameters())
    start = np.concatenate([p.detach().cpu().numpy().ravel() for p in parameters]).astype(np.float64)
    error = y.detach().cpu().numpy().astype(np.float64) - inputs @ start
    factor = CURVATURES[loss] / len(inputs)
    if len(inputs) < len(start):
        # (mu I + f X^T X)^-1 X^T = X^T (mu I + f X X^T)^-1: the smaller system of the two.
        kernel = proximal_mu * np.eye(len(inputs)) + factor * (inputs @ inputs.T)
        moved = start + factor * (inputs.T @ np.linalg.solve(kernel, error))
    else:
        kernel = proximal_mu * np.eye(len(start)) + factor * (inputs.T @ inputs)
        moved = start + factor * np.linalg.solve(kernel, inputs.T @ error)
    with torch.no_grad():
        place = 0
        for parameter in parameters:
            values = moved[place : place + parameter.numel()]
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
            place += parameter.numel()
    return float(np.mean(error**2) * CURVATURES[loss] / 2)
