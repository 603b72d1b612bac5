"""Networks computed side by side: of n copies with weights of their own, each layer by one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from florets.task.models.cnn import ConvNet, pool_and_relu
from florets.task.training.modules import is_known, set_mode

_ON_VALUES = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Softplus, nn.Identity)
"""Layers without parameters that act on each value alone."""


class Network(Protocol):
    """A network of which n copies can be computed side by side."""

    @property
    def names(self) -> list[str]:
        """Names of the parameters, in the order of the state dict."""

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the outputs (n, b, C) of n networks for inputs (n, b, ...); `parameters` are stacks (n, ...)."""


@dataclass(frozen=True)
class Dense:
    """Linear layers, by name, and functions of single values; inputs are flattened first, or are not."""

    layers: tuple[tuple[str, nn.Module], ...]
    flattens: bool = True

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        return [f"{name}.{entry}" for name, layer in self.layers for entry in layer.state_dict()]

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        x = x.flatten(2) if self.flattens else x
        # A linear layer acts on the last dimension alone.
        between = (1,) * (x.ndim - 3)
        for name, layer in self.layers:
            if not isinstance(layer, nn.Linear):
                x = layer(x)
                continue
            weight = parameters[f"{name}.weight"].mT
            x = x @ weight.view(-1, *between, *weight.shape[1:])
            if layer.bias is not None:
                x = x + parameters[f"{name}.bias"].view(len(weight), 1, *between, -1)
        return x


@dataclass(frozen=True)
class Mapped:
    """Any other module that treats each sample by itself and draws nothing, by `torch.func.vmap`."""

    module: nn.Module

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        return list(self.module.state_dict())

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        set_mode(self.module, True)

        def one(own: Mapping[str, Tensor], x: Tensor) -> Tensor:
            outputs: Tensor = functional_call(self.module, dict(own), (x,))
            return outputs

        mapped: Tensor = vmap(one)(parameters, x)
        return mapped


@dataclass(frozen=True)
class Convolutions:
    """Convolutions, each with ReLU and pooling, and a linear layer; networks' channels share one image."""

    padding: int
    convolutions: int

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        layers = [f"convolutions.{i}" for i in range(self.convolutions)] + ["linear"]
        return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        n, (inputs, batch) = len(parameters["linear.weight"]), x.shape[:2]
        layout = torch.channels_last if x.device.type == "cpu" else torch.contiguous_format
        # One image has the channels of all networks, (b, n c, h, w); of one input, (1, b, ...), all take those.
        x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=layout)
        for i in range(self.convolutions):
            weight = parameters[f"convolutions.{i}.weight"].flatten(0, 1).contiguous(memory_format=layout)
            bias = parameters[f"convolutions.{i}.bias"].flatten()
            x = pool_and_relu(F.conv2d(x, weight, bias, padding=self.padding, groups=inputs if i == 0 else n))
        features = x.reshape(batch, n, -1).transpose(0, 1)
        return torch.baddbmm(
            parameters["linear.bias"].unsqueeze(1), features, parameters["linear.weight"].transpose(1, 2)
        )


def network_of(module: nn.Module) -> Network | None:
    """Return the network that a module is, or None if copies of it cannot be computed side by side."""
    # A hook may come at any time, and may compute something else.
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return None
    if module not in _known:
        _known[module] = _read(module)
    return _known[module]


_known: "WeakKeyDictionary[nn.Module, Network | None]" = WeakKeyDictionary()


def _read(module: nn.Module) -> Network | None:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    # Tied weights are one parameter under two names.
    distinct = len({id(parameter) for parameter in parameters.values()}) == len(parameters) > 0
    if not distinct or not all(p.requires_grad and p.dtype == torch.float32 for p in parameters.values()):
        return None
    network = _convolutions(module) or _dense(module) or _mapped(module)
    return network if network is not None and list(module.state_dict()) == network.names == list(parameters) else None


# Modules are compared by type: a subclass, such as a parametrised layer, may compute something else.


def _convolutions(module: nn.Module) -> Network | None:
    if type(module) is not ConvNet or type(module.linear) is not nn.Linear:
        return None
    if any(type(part) is not nn.Conv2d or part.padding_mode != "zeros" for part in module.convolutions):
        return None
    return Convolutions(module.padding, len(module.convolutions))


def _dense(module: nn.Module) -> Dense | None:
    if type(module) is not nn.Sequential:
        return None
    # One activation may stand in several places. What a Sequential within holds comes after it.
    parts = module.named_modules(remove_duplicate=False)
    layers = [(name, layer) for name, layer in parts if type(layer) is not nn.Sequential]
    flattens = len(layers) > 0 and repr(layers[0][1]) == repr(nn.Flatten())
    layers = layers[flattens:]
    is_dense = all(type(layer) in (nn.Linear, *_ON_VALUES) for _, layer in layers)
    return Dense(tuple(layers), flattens) if is_dense else None


def _mapped(module: nn.Module) -> Mapped | None:
    is_able = all(is_known(part) and not isinstance(part, nn.Conv2d | _BatchNorm) for part in module.modules())
    return Mapped(module) if is_able else None
