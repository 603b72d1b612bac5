"""Negative gradients of single samples, for several models at once: the moments of mixed regression and beyond it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from florets.task.training.linear import CURVATURES, linear_names
from florets.task.training.losses import count, per_sample_losses, targets_of

Float32 = NDArray[np.float32]

LARGEST_BLOCK = 2**22
"""Moments computed at a time, in values: 16 MB."""


def sample_moments(module: nn.Module, estimates: Float32, x: Tensor, y: Tensor, loss: str) -> Float32:
    """Return the negative gradient of the loss of each sample at each model.

    Parameters
    ----------
    module
        A module of the models' shape; it is put into eval mode, its parameters do not count.
    estimates
        float32 (A, R): A models, flat in the order of the module's state dict.
    x, y
        Inputs (n, *input_shape) and targets (n,).
    loss
        See `florets.task.training.losses.per_sample_losses`.

    Returns
    -------
    ndarray
        float32 (A, n, R); zero where an entry is no trained parameter (buffers), so that it never moves.

    Raises
    ------
    ValueError
        If the models have another number of values than the module.

    Source: mixed regression, Phase 1 (epsilon(x, y, theta)) and Remark 3.
    """
    size = sum(value.numel() for value in module.state_dict().values())
    if estimates.shape[1] != size:
        raise ValueError(
            f"the estimates have {estimates.shape[1]} values each, but this client's model has {size}; "
            "server and clients must build the same model."
        )
    count(gradients=len(estimates) * len(x))
    if names := linear_names(module, loss):
        shape = module.state_dict()[names.weight].shape
        return _linear_moments((shape[0], shape[1]), names.bias is not None, estimates, x, y, loss)
    moments = np.zeros((len(estimates), len(x), size), dtype=np.float32)
    step = max(1, LARGEST_BLOCK // (len(x) * size))
    for start in range(0, len(estimates), step):
        block = slice(start, start + step)
        _torch_moments(module, estimates[block], x, y, loss, moments[block])
    return moments


def _linear_moments(
    shape: tuple[int, int], has_bias: bool, estimates: Float32, x: Tensor, y: Tensor, loss: str
) -> Float32:
    """Return the closed form: outer products of the outputs' slopes and the inputs."""
    inputs, targets = x.detach().flatten(1).cpu().numpy(), y.detach().cpu().numpy()
    num_weights = shape[0] * shape[1]
    weights = estimates[:, :num_weights].reshape(len(estimates), *shape)
    outputs = inputs @ weights.transpose(0, 2, 1)
    if has_bias:
        outputs += estimates[:, np.newaxis, num_weights:]
    slopes = _negative_slopes(outputs, targets, loss)
    products = slopes[..., np.newaxis] * inputs[:, np.newaxis]
    moments: Float32 = products.reshape(len(estimates), len(inputs), num_weights)
    return np.concatenate([moments, slopes], axis=2) if has_bias else moments


def _negative_slopes(outputs: Float32, targets: NDArray[Any], loss: str) -> Float32:
    """Return minus the derivative of each sample's loss by the outputs (A, n, C)."""
    slopes: Float32
    if loss in CURVATURES:
        slopes = np.float32(CURVATURES[loss]) * (targets[:, np.newaxis] - outputs)
        return slopes
    slopes = np.exp(outputs - outputs.max(axis=2, keepdims=True))
    slopes /= -slopes.sum(axis=2, keepdims=True)
    slopes[:, np.arange(len(targets)), targets] += 1
    return slopes


def _torch_moments(module: nn.Module, estimates: Float32, x: Tensor, y: Tensor, loss: str, moments: Float32) -> None:
    """Fill in the moments of models of any architecture: a gradient for each model and sample in one batched pass."""
    module.eval()
    trained = {name for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.requires_grad}
    parameters: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    places, start = {}, 0
    for name, value in module.state_dict().items():
        places[name] = slice(start, start + value.numel())
        part = torch.from_numpy(estimates[:, places[name]].copy()).reshape(len(estimates), *value.shape)
        (parameters if name in trained else others)[name] = part.to(x.device, value.dtype)
        start += value.numel()

    def loss_of(values: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        one, wanted = inputs.unsqueeze(0), target.unsqueeze(0)
        outputs = functional_call(module, {**values, **rest}, (one,))
        return per_sample_losses(outputs, targets_of(one, wanted, loss), loss).sum()

    # Over the models too: of a small model a pass for each would spend two thirds of its time in PyTorch's overhead.
    of_samples = vmap(grad(loss_of), in_dims=(None, None, 0, 0))
    gradients = vmap(of_samples, in_dims=(0, 0, None, None))(parameters, others, x, y)
    for name, found in gradients.items():
        np.negative(found.detach().flatten(2).cpu().numpy(), out=moments[:, :, places[name]])


def unflatten(module: nn.Module, vector: Float32) -> dict[str, Tensor]:
    """Return the state dict whose values are a flat vector (R,), each in the dtype of the module's own."""
    state, start = {}, 0
    for name, value in module.state_dict().items():
        part = torch.from_numpy(vector[start : start + value.numel()].copy())
        state[name] = part.reshape(value.shape).to(value.dtype)
        start += value.numel()
    return state
