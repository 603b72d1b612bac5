"""Local training of several clients' networks at once, of each layer all clients' by one call.

A small network's training costs less in arithmetic than in calls: of n clients one call does the work of n. The steps
are those of `florets.task.training.loop`, from the same draws; results agree to rounding.

On a device the draws of all steps are moved there before the first, and nothing is fetched before the last: no step
waits for the end of another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import Module
from torch.nn import functional as F

from florets.task.models.cnn import ConvNet, pool_and_relu
from florets.task.training.loop import plain_optimizer
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.modules import on_host, torch_seed
from florets.task.training.optimizers import clip_rows
from florets.task.training.settings import Training

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


@dataclass(frozen=True)
class Share:
    """One client's part in a stacked training.

    Parameters
    ----------
    state
        The model that it starts from; not changed.
    x, y
        Inputs (m, *input_shape) and targets (m,), at least one.
    rng
        Makes what `train` takes; asked only where there is something to draw.
    first
        What the model's first layer says of `x`, (m, h), where that is known already.
    weights
        Of the samples in the loss (m,), of all clients or none; None: 1 each.
    """

    state: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    rng: Callable[[], np.random.Generator]
    first: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class Trained:
    """One client's result: its model's entries, the mean loss as `train` returns it, and gradient passes."""

    arrays: dict[str, NDArray[np.float32]]
    mean: float
    passes: int


@dataclass(frozen=True)
class _Steps:
    """Steps of one client: its samples' places (T, b), of which the first `sizes` (T,) count, and the last epoch."""

    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    last_epoch: int

    @classmethod
    def drawn(cls, num_samples: int, settings: Training, new_rng: Callable[[], np.random.Generator]) -> "_Steps":
        """Draw them as `train` does, first of all the seed of dropout, which is not used here.

        Where each step is on all samples nothing is drawn: their order matters to rounding alone.
        """
        size = min(settings.batch_size, num_samples)
        batches = -(-num_samples // size)
        if batches == 1:
            return _on_all_samples(num_samples, settings.num_steps(batches))
        steps = settings.num_steps(batches)
        epochs = -(-steps // batches)
        # What is left over of the last batch stays sample 0: a step's mean leaves it out.
        places = np.zeros((epochs, batches * size), dtype=np.int64)
        rng = new_rng()
        torch_seed(rng)
        for epoch in places:
            epoch[:num_samples] = rng.permutation(num_samples)
        sizes = np.full((epochs, batches), size, dtype=np.int64)
        sizes[:, -1] = num_samples - (batches - 1) * size
        last = (epochs - 1) * batches
        return cls(places.reshape(-1, size)[:steps], sizes.ravel()[:steps], last)


@lru_cache(maxsize=256)
def _on_all_samples(num_samples: int, steps: int) -> _Steps:
    places, sizes = np.tile(np.arange(num_samples), (steps, 1)), np.full(steps, num_samples)
    # The same for many clients: nobody may change them.
    places.flags.writeable = sizes.flags.writeable = False
    return _Steps(places, sizes, steps - 1)


def stacked_update(network: Network, shares: Sequence[Share], loss: str, settings: Training) -> list[Trained]:
    """Train each client's model on its own data, all of them side by side; see `train`.

    Parameters
    ----------
    network
        What the models are.
    shares
        Of n clients, in any order. Clients of like numbers of samples together cost least: one with fewer waits for
        those with more, and batches are filled up to the largest one.
    loss, settings
        See `train`; the settings are plain (`Training.is_plain`).

    Returns
    -------
    list of Trained
        In the order of `shares`. The arrays are views of one stack.
    """
    drawn = [_Steps.drawn(share.x.shape[0], settings, share.rng) for share in shares]
    # Those with most steps first: the clients that still train are then always the first ones.
    order = sorted(range(len(shares)), key=lambda place: -len(drawn[place].sizes))
    ordered = [shares[place] for place in order]
    batches = _Batches([drawn[place] for place in order], ordered, loss)
    stacks = {name: torch.stack([share.state[name] for share in ordered]) for name in network.names}
    training = dict(stacks)
    optimizer = None
    seen = torch.zeros(len(shares), dtype=torch.float64, device=batches.device)
    for step, active in enumerate(batches.active):
        if optimizer is None or active != len(training[network.names[0]]):
            # They share the stacks' memory, so that what has been trained stays there.
            training = {name: stack[:active].detach().requires_grad_() for name, stack in stacks.items()}
            if optimizer is None:
                optimizer = plain_optimizer(list(training.values()), settings)
            else:
                optimizer.narrow(list(training.values()))
        for parameter in training.values():
            parameter.grad = None
        x, targets, weights = batches.at(step, active)
        outputs = network.outputs(training, x)
        width = outputs.shape[1]
        losses = per_sample_losses(outputs.flatten(0, 1), targets, loss).view(active, width) * weights
        # Each client's mean depends on its own parameters alone: the sum has all their gradients.
        means = losses.sum(dim=1) / batches.counts[:active, step]
        means.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
        if settings.clip_norm is not None:
            clip_rows(list(training.values()), settings.clip_norm)
        optimizer.step()
        batches.add(seen[:active], means.detach(), step)
    *values, sums = on_host(*stacks.values(), seen)
    arrays = {name: value.numpy() for name, value in zip(stacks, values, strict=True)}
    found: dict[int, Trained] = {}
    for row, place in enumerate(order):
        steps = drawn[place]
        mean = sums[row].item() / int(steps.sizes[steps.last_epoch :].sum())
        own = {name: stack[row] for name, stack in arrays.items()}
        found[place] = Trained(own, mean, int(steps.sizes.sum()))
    return [found[place] for place in range(len(shares))]


class _Batches:
    """Batches of all clients, step by step: the clients with most steps come first."""

    def __init__(self, steps: Sequence[_Steps], shares: Sequence[Share], loss: str) -> None:
        longest, widest = len(steps[0].sizes), max(own.places.shape[1] for own in steps)
        self._x = torch.cat([share.x for share in shares])
        self._targets = targets_of(self._x, torch.cat([share.y for share in shares]), loss)
        given = [share.weights for share in shares if share.weights is not None]
        self._weights = torch.cat(given) if given else None
        starts = np.cumsum([0, *(share.x.shape[0] for share in shares[:-1])])
        # A client that waits, or whose batch is smaller, takes its own first sample: another's may be no number.
        places = np.zeros((longest, len(steps), widest), dtype=np.int64) + starts[:, None]
        sizes = np.ones((longest, len(steps)), dtype=np.int64)
        for row, own in enumerate(steps):
            count, width = own.places.shape
            places[:count, row, :width] += own.places
            sizes[:count, row] = own.sizes
        lengths = np.array([len(own.sizes) for own in steps])
        self.device = device = self._x.device
        # Sizes on both sides: here they say what is to be done, there it is done.
        self._sizes, self._last = sizes, np.array([own.last_epoch for own in steps])
        self._places, self._sizes_there = torch.from_numpy(places).to(device), torch.from_numpy(sizes).to(device)
        self._last_there = torch.from_numpy(self._last).to(device)
        self._columns = torch.arange(widest, device=device)
        self._one = torch.ones(1, 1, device=device)
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self.counts = torch.from_numpy(sizes.T.astype(np.float32)).to(device)
        self.active = [int((lengths > step).sum()) for step in range(longest)]
        """Number of clients that still train, of each step."""

    def at(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (n, b, ...), targets (n b, ...), and each sample's weight (n, b), 0 of fillers."""
        sizes = self._sizes[step, :active]
        width = int(sizes.max())
        places = self._places[step, :active, :width].reshape(-1)
        weights = self._one
        if sizes.min() < width:
            weights = (self._columns[:width] < self._sizes_there[step, :active, None]).float()
        if self._weights is not None:
            weights = weights * self._weights[places].view(active, width)
        x = self._x[places]
        return x.view(active, width, *x.shape[1:]), self._targets[places], weights

    def add(self, seen: Tensor, means: Tensor, step: int) -> None:
        """Add a step's losses to the sums (n,) of those clients whose last epoch it belongs to."""
        active = len(seen)
        sums = means.double() * self._sizes_there[step, :active]
        if (self._last[:active] <= step).all():
            seen += sums
        else:
            seen += sums.where(self._last_there[:active] <= step, self._zero)


MOST = 64
"""More gained under a tenth on any network that was measured."""

MOST_CONVOLUTIONS = 6
"""On MNIST's images 2 to 12 gain about as much, 25 less: the outputs of convolutions outgrow the cache."""

FULL_STEPS_STACK = 16
"""Clients of one `full_steps_update`, which holds no stack of first layers."""

MOST_ON_DEVICE = 256
"""Not measured: of so many clients the calls that are left cost less than the clients' own messages."""

DEVICE_MEMORY = 2 * 2**30
"""Bytes that a block's work may hold on a device, beside the clients' data; less than any current GPU has."""

_MEMORY = 16 * 2**20
_BYTES = 16
"""Of one parameter in training: its value, its gradient and Adam's two moments."""

_BYTES_ON_DEVICE = 20
"""The same, and the copy in which it is fetched."""

_COPIES = 4
"""Of a layer's value in a pass forward and back: itself, its gradient, and what either way needs in between."""


def block_size(module: Module, device: torch.device | None = None) -> int:
    """Return the most clients of a block for losses, training and tests of copies of a module; 1: blocks do not pay.

    Networks that cannot be stacked at all gain nothing, and neither do those of whose parameters fewer than two
    clients' fit into the processor's cache, or a device's share of memory. None stands for the CPU.
    """
    network = network_of(module)
    if device is not None and device.type != "cpu":
        fit = DEVICE_MEMORY // (_BYTES_ON_DEVICE * max(1, _num_parameters(module)))
        able = network is not None and takes_blocks(device) and fit >= 2
        return min(MOST_ON_DEVICE, fit) if able else 1
    if network is None or stack_size(module) < 2:
        return 1
    if isinstance(network, Convolutions):
        return min(MOST_CONVOLUTIONS, stack_size(module))
    return max(FULL_STEPS_STACK, stack_size(module))


def takes_blocks(device: torch.device) -> bool:
    """Say whether clients are computed together there; an Apple GPU has no float64, in which losses are summed."""
    return device.type != "mps"


def stack_size(module: Module) -> int:
    """Return the most clients of a block that are trained in one stack.

    All that a stack trains should stay in the processor's cache: beyond that the calls that are saved cost more in
    memory accesses.
    """
    return max(1, min(MOST, _MEMORY // (_BYTES * _num_parameters(module))))


def device_stack_size(network: Network, state: Mapping[str, Tensor], x: Tensor, batch_size: int) -> int:
    """Return the most clients that are trained in one stack on a device: as many as its share of memory holds.

    Parameters
    ----------
    state
        One of the models.
    x
        Inputs of the client that has most.
    batch_size
        Samples of one step.
    """
    values = network.values(state, x.shape[1:])
    parameters = sum(value.numel() for value in state.values())
    # The last term is the stack's own copy of the samples.
    own = _BYTES_ON_DEVICE * parameters + 4 * _COPIES * min(batch_size, len(x)) * values + 4 * x.numel()
    return max(1, min(MOST_ON_DEVICE, DEVICE_MEMORY // own))


def device_samples(network: Network, states: int, state: Mapping[str, Tensor], shape: tuple[int, ...]) -> int:
    """Return the most samples of one pass forward of a number of models on a device; see `device_stack_size`."""
    return max(1, DEVICE_MEMORY // (4 * _COPIES * states * network.values(state, shape)))


def _num_parameters(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
