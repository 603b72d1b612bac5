"""Networks computed side by side: of n copies with weights of their own, each layer by one call.

Any module can be, by `torch.func.vmap`, if it treats each sample by itself and draws nothing. Dense and convolutional
networks are written out because that is faster than vmap (one thread, CPU): dense ones by 1.1 to 1.4 (1.4 on batches
of 20 digits and on clients of two), grouped convolutions by 2.8, where vmap is slower than client by client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from florets.task.models.cnn import ConvNet, pool_and_relu
from florets.task.training.modules import is_known, set_mode, torch_random
from florets.task.training.unsaved import Unsaved

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
        """Return the outputs of n networks for inputs (n, b, ...), each of its own, as (n, b, C).

        Parameters
        ----------
        parameters
            Stacks (n, ...) of each entry of the state dict.
        x
            Inputs of one batch for each network, or of one batch for all of them, (1, b, ...).
        """


@dataclass(frozen=True)
class Mapped:
    """Any module that treats each sample by itself; see `Network`."""

    module: nn.Module

    @property
    def names(self) -> list[str]:
        """See `Network`."""
        return list(self.module.state_dict())

    def outputs(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """See `Network`."""
        # With gradients it is trained, without them it is tested.
        set_mode(self.module, torch.is_grad_enabled())

        def one(own: Mapping[str, Tensor], x: Tensor) -> Tensor:
            outputs: Tensor = functional_call(self.module, dict(own), (x,))
            return outputs

        mapped: Tensor = vmap(one)(parameters, x) if len(x) > 1 else vmap(one, (0, None))(parameters, x[0])
        return mapped


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
        """Return the outputs (n, b, h) of the first layers of n networks for inputs (b, d), by one product."""
        assert self.first is not None
        weight, name = parameters[self.first.weight], self.first.bias
        bias = None if name is None else parameters[name].flatten()
        return F.linear(x, weight.flatten(0, 1), bias).view(len(x), len(weight), -1).transpose(0, 1)

    @property
    def first(self) -> Layer | None:
        """The first layer, if it is a linear one."""
        return self.layers[0] if self.layers and self.layers[0].function is None else None

    def after_first(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return the outputs of n networks for outputs of their first layers (n, b, h)."""
        return _through(self.layers[1:], parameters, z)


def _through(layers: tuple[Layer, ...], parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of some layers of n networks for (n, b, d)."""
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
    channels come last in memory: grouped convolutions and pooling are nearly twice as fast so. On a
    GPU they come first, as its grouped convolutions of 32 bits expect them; that is not measured.
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


def network_of(module: nn.Module, example: Tensor | None = None) -> Network | None:
    """Return the network that a module is, or None if copies of it cannot be computed side by side.

    They can not where it draws (dropout), normalises by batches or has convolutions other than the built-in ones, has
    buffers, hooks, tied or frozen weights.

    Parameters
    ----------
    example
        Some of its inputs, on which a module with a forward pass of its own is tried; None: such a one is not taken.
    """
    # A hook may come at any time, and may compute something else.
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return None
    network = _known.get(module)
    if module not in _known and ((network := _read(module, example)) is not None or example is not None):
        _known[module] = network
    return network


_known: "WeakKeyDictionary[nn.Module, Network | None]" = WeakKeyDictionary()


def _read(module: nn.Module, example: Tensor | None) -> Network | None:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    # Tied weights are one parameter under two names.
    distinct = len({id(parameter) for parameter in parameters.values()}) == len(parameters) > 0
    if not distinct or not all(p.requires_grad and p.dtype == torch.float32 for p in parameters.values()):
        return None
    written_out = _dense(module) if type(module) is nn.Sequential else _convolutions(module)
    network: Network | None = written_out or _mapped(module, example)
    return network if network is not None and list(module.state_dict()) == network.names == list(parameters) else None


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


def _mapped(module: nn.Module, example: Tensor | None) -> Mapped | None:
    # Of n copies convolutions are grouped ones, which are slower than one after the other.
    if any(isinstance(part, _ConvNd | _BatchNorm) for part in module.modules()):
        return None
    if all(is_known(part) for part in module.modules()):
        return Mapped(module)
    return Mapped(module) if example is not None and _treats_samples_alone(module, example) else None


def _treats_samples_alone(module: nn.Module, x: Tensor) -> bool:
    """Try whether a module's outputs for a sample depend on it alone, and vmap takes it."""
    set_mode(module, True)
    stacks = {name: value.detach().unsqueeze(0) for name, value in module.state_dict().items()}
    unsaved = Unsaved(module)
    with torch_random(np.random.default_rng(0)), torch.enable_grad():
        before = torch.get_rng_state()
        try:
            together = Mapped(module).outputs(stacks, x.unsqueeze(0))[0]
            alone = torch.cat([module(x[place : place + 1]) for place in range(len(x))])
        except Exception:  # it may be anybody's code: then it is computed as it is
            return False
        draws_nothing = torch.equal(before, torch.get_rng_state())
    # What it remembers of one client would reach the others.
    if unsaved.changed():
        return False
    return draws_nothing and together.shape == alone.shape and torch.allclose(together, alone, 1e-4, 1e-5)
