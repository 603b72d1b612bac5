"""Losses, training and tests of several clients' models at once: the same steps and draws, equal to rounding."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.client_data import Part
from florets.task.training.loop import PlainOptimizer
from florets.task.training.losses import CHUNK, Evaluated, evaluated, loss_vector, per_sample_losses, targets_of
from florets.task.training.modules import load, on_host, set_mode, torch_seed
from florets.task.training.networks import Convolutions, Network, network_of
from florets.task.training.scores import scores_of
from florets.task.training.settings import Training

MOST, LEAST = 64, 8
"""Clients of one stack on a CPU: more gained under a tenth on any network that was measured, and where fewer fit into
the cache, stacks took up to 1.7 times as long as one client after the other."""
LEAST_BLOCK = 16
"""Clients of a block of dense networks, of however many all parameters fit into the cache, and of full steps."""
MOST_CONVOLUTIONS = 6
"""On MNIST's images 2 to 12 gain about as much, 25 less: the outputs of convolutions outgrow the cache."""
_VALUES = 2**22
"""Of all layers in one step of a stack of convolutions on several input channels: of more, it took up to 1.2 times as
long. Those on one channel are so slow alone that any stack gains."""
_SMALL, _FEW = 12_000, 100
"""Values of a sample in a network of convolutions, and tested samples, up to which clients are compared and tested
faster together: of more it took up to 1.4 times as long."""
_CONVOLVED = 100
"""Samples of one pass of convolutions: with more than four times as many their outputs outgrow the cache."""
MOST_ON_DEVICE, DEVICE_MEMORY = 256, 2 * 2**30
"""Clients of one stack on a device, and bytes that it may hold beside their data: less than any current GPU has."""
_CACHE, _BYTES, _BYTES_ON_DEVICE = 16 * 2**20, 16, 20
"""Bytes of the processor's cache, and of a parameter in training (value, gradient, Adam's two moments; on a device
the copy in which it is fetched)."""
_COPIES = 4
"""Of a layer's value in a pass forward and back: itself, its gradient, and what either way needs in between."""


@dataclass(frozen=True)
class Share:
    """One client's part in a stacked training: the model that it starts from, and its samples, at least one."""

    state: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    rng: Callable[[], np.random.Generator]
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
    def drawn(cls, num_samples: int, training: Training, new_rng: Callable[[], np.random.Generator]) -> "_Steps":
        """Draw them as `train` does, first of all the seed of dropout, which is not used here."""
        size = min(training.batch_size, num_samples)
        batches = -(-num_samples // size)
        steps = training.num_steps(batches)
        epochs = -(-steps // batches)
        # What is left over of the last batch stays sample 0: a step's mean leaves it out.
        places = np.zeros((epochs, batches * size), dtype=np.int64)
        places[:, :num_samples] = np.arange(num_samples)
        if batches > 1:
            rng = new_rng()
            torch_seed(rng)
            for epoch in places:
                epoch[:num_samples] = rng.permutation(num_samples)
        sizes = np.full((epochs, batches), size, dtype=np.int64)
        sizes[:, -1] = num_samples - (batches - 1) * size
        return cls(places.reshape(-1, size)[:steps], sizes.ravel()[:steps], (epochs - 1) * batches)


def stacked_update(network: Network, shares: Sequence[Share], loss: str, training: Training) -> list[Trained]:
    """Train each client's model on its own data, all of them side by side; see `train`."""
    drawn = [_Steps.drawn(share.x.shape[0], training, share.rng) for share in shares]
    # Those with most steps first: the clients that still train are then always the first ones.
    order = sorted(range(len(shares)), key=lambda place: -len(drawn[place].sizes))
    ordered = [shares[place] for place in order]
    batches = _Batches([drawn[place] for place in order], ordered, loss)
    stacks = {name: torch.stack([share.state[name] for share in ordered]) for name in network.names}
    parameters = dict(stacks)
    optimizer = None
    seen = torch.zeros(len(shares), dtype=torch.float64, device=batches.device)
    for step, active in enumerate(batches.active):
        if optimizer is None or active != len(parameters[network.names[0]]):
            # They share the stacks' memory, so that what has been trained stays there.
            parameters = {name: stack[:active].detach().requires_grad_() for name, stack in stacks.items()}
            if optimizer is None:
                optimizer = PlainOptimizer(list(parameters.values()), training)
            else:
                optimizer.narrow(list(parameters.values()))
        for parameter in parameters.values():
            parameter.grad = None
        x, targets, weights = batches.at(step, active)
        outputs = network.outputs(parameters, x)
        losses = per_sample_losses(outputs.flatten(0, 1), targets, loss).view_as(weights)
        # Each client's losses depend on its own parameters alone.
        losses.backward(weights)  # type: ignore[no-untyped-call]  # torch leaves it without types
        optimizer.step()
        batches.add(seen[:active], (losses.detach() * weights).sum(dim=1), step)
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
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self._parts = torch.from_numpy(1 / sizes[:, :, None].astype(np.float32)).to(device)
        self.active = [int((lengths > step).sum()) for step in range(longest)]
        """Number of clients that still train, of each step."""

    def at(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (n, b, ...), targets (n b, ...), and samples' parts (n, b) in their client's mean."""
        sizes = self._sizes[step, :active]
        width = int(sizes.max())
        places = self._places[step, :active, :width].reshape(-1)
        weights = self._parts[step, :active].expand(active, width)
        if sizes.min() < width:
            weights = weights * (self._columns[:width] < self._sizes_there[step, :active, None])
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


def joined_losses(
    module: Module, states: Sequence[Mapping[str, Tensor]], parts: Sequence[Part], loss: str
) -> NDArray[np.float64]:
    """Return the mean loss of each of K models on each of n clients' data in eval mode, (n, K)."""
    if not _join(module, parts):
        return np.stack([loss_vector(module, states, x, y, loss) for x, y in parts])
    network, losses, stacks = network_of(module), list[Tensor](), dict[str, Tensor]()
    if isinstance(network, Convolutions):
        stacks = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    with torch.inference_mode():
        for x, y in _passes(module, parts):
            targets = targets_of(x, y, loss)
            if isinstance(network, Convolutions):
                outputs = network.outputs(stacks, x.unsqueeze(0))
                losses += [per_sample_losses(own, targets, loss) for own in outputs]
                continue
            for state in states:
                load(module, state)
                losses.append(per_sample_losses(module(x), targets, loss))
    of_models = [torch.cat(losses[model :: len(states)]) for model in range(len(states))]
    return np.stack([_means(own.double().numpy(), parts) for own in on_host(*of_models)], axis=1)


def joined_tests(module: Module, state: Mapping[str, Tensor], parts: Sequence[Part], loss: str) -> list[Evaluated]:
    """Return the test of one model on each client's data; see `florets.task.training.losses.evaluated`."""
    load(module, state)
    if not _join(module, parts, _FEW):
        return [evaluated(module, x, y, loss) for x, y in parts]
    outputs_there, losses_there = [], []
    with torch.inference_mode():
        for x, y in _passes(module, parts):
            outputs_there.append(module(x))
            losses_there.append(per_sample_losses(outputs_there[-1], targets_of(x, y, loss), loss))
    # Of reconstructions there are no scores, and they are as large as the data.
    scored, classes = loss != "reconstruction", loss == "cross_entropy"
    outputs, losses, y = on_host(
        torch.cat(outputs_there[: None if scored else 1]),
        torch.cat(losses_there),
        torch.cat([own for _, own in parts]),
    )
    means, starts = _means(losses.double().numpy(), parts), _starts(parts)
    correct = np.add.reduceat(outputs.argmax(dim=1).numpy() == y.numpy(), starts, dtype=np.int64) if classes else None
    values, targets = outputs.flatten(1).double().numpy(), y.numpy()
    tests = []
    for client, (start, (_, own)) in enumerate(zip(starts, parts, strict=True)):
        rows = slice(start, start + own.shape[0])
        scores = scores_of(values[rows], targets[rows], loss) if scored and targets.ndim == 1 else {}
        accuracy = None if correct is None else int(correct[client]) / own.shape[0]
        tests.append(Evaluated(float(means[client]), accuracy, scores, values[rows] if scored else None))
    return tests


def _join(module: Module, parts: Sequence[Part], most: float = np.inf) -> bool:
    """Say whether losses of several clients' data, at most so many samples of each, are faster taken together."""
    x = max((own for own, _ in parts), key=len)
    if x.device.type != "cpu" or not isinstance(network_of(module), Convolutions):
        return True
    return len(x) <= most and _values(module, x.shape[1:]) <= _SMALL


def _passes(module: Module, parts: Sequence[Part]) -> Iterator[Part]:
    """Yield all clients' samples, one after the other, in passes: copied pass by pass, not all at once."""
    set_mode(module, False)
    # A CPU's are few enough for its cache, a GPU's as many as its memory holds.
    most = _CONVOLVED if isinstance(network_of(module), Convolutions) else CHUNK
    if parts[0][0].device.type != "cpu":
        most = max(1, DEVICE_MEMORY // (4 * _COPIES * _values(module, parts[0][0].shape[1:])))
    held: list[Part] = []
    room = most
    for x, y in parts:
        begin = 0
        while begin < x.shape[0]:
            end = min(x.shape[0], begin + room)
            held.append((x[begin:end], y[begin:end]))
            room -= end - begin
            begin = end
            if room == 0:
                yield _joined(held)
                held, room = [], most
    if held:
        yield _joined(held)


def _joined(parts: Sequence[Part]) -> Part:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def _starts(parts: Sequence[Part]) -> NDArray[np.int64]:
    return np.cumsum([0, *(x.shape[0] for x, _ in parts[:-1])])


def _means(losses: NDArray[np.float64], parts: Sequence[Part]) -> NDArray[np.float64]:
    """Return the mean of each client's losses."""
    means: NDArray[np.float64] = np.add.reduceat(losses, _starts(parts)) / [x.shape[0] for x, _ in parts]
    return means


def block_size(module: Module, device: torch.device) -> int:
    """Return the most clients of a block for losses, training and tests; 1: blocks do not pay."""
    network, fit = network_of(module), _fitting(module, device)
    if network is None or fit < 2 or not takes_blocks(device):
        return 1
    if device.type != "cpu":
        return min(MOST_ON_DEVICE, fit)
    return min(MOST_CONVOLUTIONS, fit) if isinstance(network, Convolutions) else max(LEAST_BLOCK, min(MOST, fit))


def takes_blocks(device: torch.device) -> bool:
    """Say whether clients are computed together there; an Apple GPU has no float64, in which losses are summed."""
    return device.type != "mps"


def stack_size(module: Module, x: Tensor, batch_size: int) -> int:
    """Return the most clients that are trained in one stack; 1: one after the other is faster."""
    values, fit = min(batch_size, len(x)) * _values(module, x.shape[1:]), _fitting(module, x.device)
    if x.device.type != "cpu":
        # The last term is the stack's own copy of the samples.
        own = _BYTES_ON_DEVICE * _num_parameters(module) + 4 * _COPIES * values + 4 * x.numel()
        return max(1, min(MOST_ON_DEVICE, DEVICE_MEMORY // own))
    if not isinstance(network_of(module), Convolutions):
        return min(MOST, fit) if fit >= LEAST else 1
    return max(1, min(MOST_CONVOLUTIONS, fit if x.shape[1] == 1 else min(fit, _VALUES // values)))


def _fitting(module: Module, device: torch.device) -> int:
    """Return of how many clients all that is trained stays in the processor's cache, or the device's memory."""
    size = max(1, _num_parameters(module))
    return _CACHE // (_BYTES * size) if device.type == "cpu" else DEVICE_MEMORY // (_BYTES_ON_DEVICE * size)


_counted: "WeakKeyDictionary[Module, dict[tuple[int, ...], int]]" = WeakKeyDictionary()


def _values(module: Module, shape: tuple[int, ...]) -> int:
    """Return how many values the layers of a module take and return for one sample of this shape."""
    known = _counted.setdefault(module, {})
    if shape in known:
        return known[shape]
    tensors: dict[int, Tensor] = {}

    def look(_: Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> None:
        tensors.update({id(tensor): tensor for tensor in (*inputs, outputs)})

    hooks = [part.register_forward_hook(look) for part in module.modules() if not list(part.children())]
    try:
        with torch.no_grad():
            module(torch.zeros(1, *shape, device=next(module.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
    known[shape] = sum(tensor.numel() for tensor in tensors.values())
    return known[shape]


def _num_parameters(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
