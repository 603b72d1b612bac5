"""The clients' part of random effects: the loss of a model on the training data, to the second order."""

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.client_app.client import Client
from florets.strategies.random_effects.messages import OwnTerms, contrasts
from florets.task.training.losses import evaluated
from florets.task.training.modules import load
from florets.task.training.newton import SecondOrder, second_order
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.evaluation import MIN_RECORDS

FloatArray = NDArray[np.float64]


def terms(client: Client) -> RecordDict:
    """Return the loss by the last layer's weights and biases, or its biases alone, as the message names them.

    Of a model that diverged, of few records, and where the node's owner keeps statistics back, all is 0.
    """
    if client.loss == "reconstruction":
        raise ValueError("a reconstruction has no coefficients of its own; use a task with classes or values")
    *weights, bias = client.names(kinds.HEAD)
    state = client.on_device(client.states()[0])
    width, layer = len(state[bias]), bias.rpartition(".")[0]
    depth = state[weights[0]].shape[1] if weights else 0
    basis = contrasts(width, depth)
    size = basis.shape[1]
    value, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
    if client.shares_statistics and client.num_examples >= MIN_RECORDS:
        load(client.module, state)
        features, outputs = _last_layer(client.module, client.data.x_train, client.data.y_train, client.loss, layer)
        if np.isfinite(outputs).all() and np.isfinite(features).all():
            found = _second_order(client, features[:, :depth], outputs)
            if max(found.value, np.abs(found.gradient).max(), np.abs(found.hessian).max()) < kinds.DIVERGED:
                value, gradient, hessian = found.value, found.gradient @ basis, basis.T @ found.hessian @ basis
    return pack(OwnTerms, value=value, gradient=gradient, hessian=hessian, num_examples=client.num_examples)


def _second_order(client: Client, features: FloatArray, outputs: FloatArray) -> SecondOrder:
    """Return the loss of outputs (n, C) by changes of the layer's weights on features (n, d), and of its biases."""
    unmoved = np.zeros(outputs.shape[1] * (features.shape[1] + 1))
    targets = client.data.y_train.cpu().to(torch.float64).numpy()
    return second_order(unmoved, features, targets, client.loss, offsets=outputs)


def _last_layer(module: Module, x: Tensor, y: Tensor, loss: str, layer: str) -> tuple[FloatArray, FloatArray]:
    """Return what a layer is given (n, d) and the model's outputs (n, C), which must be the layer's."""
    given: list[Tensor] = []
    returned: list[Tensor] = []

    def keep(_: Module, arguments: tuple[Tensor, ...], result: Tensor) -> None:
        given.append(arguments[0].flatten(1).double())
        returned.append(result.flatten(1).double())

    handle = module.get_submodule(layer).register_forward_hook(keep)
    try:
        outputs = evaluated(module, x, y, loss).outputs
    finally:
        handle.remove()
    assert outputs is not None
    last: FloatArray = torch.cat(returned).cpu().numpy()
    if last.shape != outputs.shape or not np.array_equal(last, outputs, equal_nan=True):
        raise ValueError(f"the outputs of layer {layer!r} are not the model's: it is not the last one")
    features: FloatArray = torch.cat(given).cpu().numpy()
    return features, last
