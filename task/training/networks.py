"""Networks that are computed side by side: of n copies with weights of their own, each layer by one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from florets.task.models.cnn import ConvNet, pool_and_relu

_FUNCTIONS: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: torch.relu,
    nn.Sigmoid: torch.sigmoid,
    nn.Tanh: torch.tanh,
}
"""Layers without parameters that act on each value alone."""


class Network(Protocol):
    """A network of which n copies can be computed side by side."""

    @property
    def names(self) -> list[str]:
        """Names of the parameters, in the order of the state dict."""

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return what n networks say of inputs (n, b, ...), each of its own, as (n, b, C).

        Parameters
        ----------
        parameters
            Stacks (n, ...) of each entry of the state dict.
        x
            Inputs of one batch for each network, or of one batch for all of them, (1, b, ...).
        """

    def values(self, state: Mapping[str, Tensor], shape: Sequence[int]) -> int:
        """Return how many values a network of these parameters makes of one sample, of this shape, in all layers."""


@dataclass(frozen=True)
class Layer:
    """A linear layer's entries in the state dict (`bias` is None where it has none), or a function of each value."""

    weight: str = ""
    bias: str | None = None
    function: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Dense:
    """A network of linear layers and functions of single values, on flattened inputs; see `Network`."""

    layers: tuple[Layer, ...]

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        return [name for layer in self.layers for name in (layer.weight, layer.bias) if name]

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        x = x.flatten(2)
        if self.first is not None and len(x) == 1:
            return self.after_first(parameters, self.first_outputs(parameters, x[0]))
        return _through(self.layers, parameters, x)

    def first_outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return what the first layers of n networks say of the same inputs (b, d), as (n, b, h), by one product."""
        assert self.first is not None
        weight, name = parameters[self.first.weight], self.first.bias
        bias = None if name is None else parameters[name].flatten()
        return F.linear(x, weight.flatten(0, 1), bias).view(len(x), len(weight), -1).transpose(0, 1)

    def values(self, state: Mapping[str, Tensor], shape: Sequence[int]) -> int:
        """See `Network`."""
        total = width = prod(shape)
        for layer in self.layers:
            width = width if layer.function is not None else len(state[layer.weight])
            total += width
        return total

    @property
    def first(self) -> Layer | None:
        """The first layer where it is a linear one, which then nothing is done to the inputs before."""
        return self.layers[0] if self.layers and self.layers[0].function is None else None

    def after_first(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return what n networks say where their first layers said z, (n, b, h)."""
        return _through(self.layers[1:], parameters, z)


def _through(layers: tuple[Layer, ...], parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return what some layers of n networks make of (n, b, d)."""
    for layer in layers:
        if layer.function is not None:
            x = layer.function(x)
            continue
        turned = parameters[layer.weight].transpose(1, 2)
        x = x.expand(len(turned), -1, -1)
        if layer.bias is None:
            x = torch.bmm(x, turned)
        else:
            x = torch.baddbmm(parameters[layer.bias].unsqueeze(1), x, turned)
    return x


@dataclass(frozen=True)
class Convolutions:
    """Convolutions, each with ReLU and pooling, and a linear layer, as in `ConvNet`; see `Network`.

    The networks' channels stand side by side in one image, and convolutions in groups keep them apart. On a CPU
    channels come last in memory: grouped convolutions and pooling are nearly twice as fast so
    (benchmarks/bench_batch.py). On a GPU they come first, as its grouped convolutions of 32 bits expect them; that is
    not measured.
    """

    padding: int
    convolutions: int

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        layers = [f"convolutions.{i}" for i in range(self.convolutions)] + ["linear"]
        return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        own, batch = x.shape[:2]
        n = len(parameters["linear.weight"])
        layout = torch.channels_last if x.device.type == "cpu" else torch.contiguous_format
        # One image has the channels of all networks' own, (b, n c, h, w).
        x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=layout)
        for i in range(self.convolutions):
            weight = parameters[f"convolutions.{i}.weight"].flatten(0, 1)
            weight = weight.contiguous(memory_format=layout)
            bias = parameters[f"convolutions.{i}.bias"].flatten()
            # In the first layer networks with one input in common are one convolution with all their channels.
            groups = own if i == 0 else n
            x = pool_and_relu(F.conv2d(x, weight, bias, padding=self.padding, groups=groups))
        features = x.reshape(batch, n, -1).transpose(0, 1)
        return torch.baddbmm(
            parameters["linear.bias"].unsqueeze(1), features, parameters["linear.weight"].transpose(1, 2)
        )

    def values(self, state: Mapping[str, Tensor], shape: Sequence[int]) -> int:
        """See `Network`."""
        total, (height, width) = prod(shape), shape[1:]
        for i in range(self.convolutions):
            channels, *_, kernel = state[f"convolutions.{i}.weight"].shape
            height, width = (side + 2 * self.padding - kernel + 1 for side in (height, width))
            total += channels * height * width
            height, width = height // 2, width // 2
            total += channels * height * width
        return total + len(state["linear.weight"])


def network_of(module: nn.Module) -> Network | None:
    """Return the network that a module is, or None where it is not one whose copies can be computed side by side.

    It can be where it is a sequence of flattening, then linear layers and functions of single values (built-in models
    without batch normalisation or dropout, and others that are built alike), or the built-in convolutional network.
    """
    # A hook may compute something else.
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return None
    network = _dense(module) if type(module) is nn.Sequential else _convolutions(module)
    if network is None:
        return None
    parameters = dict(module.named_parameters(remove_duplicate=False))
    # Tied weights are one parameter under two names.
    distinct = len({id(parameter) for parameter in parameters.values()}) == len(parameters)
    plain = distinct and all(p.requires_grad and p.dtype == torch.float32 for p in parameters.values())
    return network if plain and list(module.state_dict()) == network.names and network.names else None


# Modules are compared by type: a subclass, such as a parametrised layer, may compute something else.


def _dense(module: nn.Sequential) -> Dense | None:
    children = list(module.named_children())
    start = children[0][1] if children else None
    if type(start) is not nn.Flatten or start.start_dim != 1 or start.end_dim != -1:
        return None
    layers: list[Layer] = []
    for name, part in children[1:]:
        if type(part) is nn.Linear:
            layers.append(Layer(f"{name}.weight", None if part.bias is None else f"{name}.bias"))
        elif (function := _FUNCTIONS.get(type(part))) is not None:
            layers.append(Layer(function=function))
        else:
            return None
    return Dense(tuple(layers))


def _convolutions(module: nn.Module) -> Convolutions | None:
    if type(module) is not ConvNet or type(module.linear) is not nn.Linear:
        return None
    if any(type(part) is not nn.Conv2d or part.padding_mode != "zeros" for part in module.convolutions):
        return None
    return Convolutions(module.padding, len(module.convolutions))
