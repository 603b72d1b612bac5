"""Local training of several clients' networks at once, of each layer all clients' by one call.

A small network's training costs less in arithmetic than in calls: of n clients one call does the work of n. The steps
are those of `florets.task.training.local_update`, from the same draws; results agree to rounding.

On a device the draws of all steps are moved there before the first, and nothing is fetched before the last: no step
waits for the end of another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from florets.task.training.local_update import TrainSettings, plain_optimizer
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.networks import Network
from florets.task.training.optimizers import clip_rows
from florets.task.training.seeding import torch_seed
from florets.task.training.transfers import on_host


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
        Makes what `local_update` takes; asked only where there is something to draw.
    first
        What the model's first layer says of `x`, (m, h), where that is known already.
    """

    state: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    rng: Callable[[], np.random.Generator]
    first: Tensor | None = None


@dataclass(frozen=True)
class Trained:
    """One client's result: its model's entries, the mean loss as `local_update` returns it, and gradient passes."""

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
    def drawn(cls, num_samples: int, settings: TrainSettings, new_rng: Callable[[], np.random.Generator]) -> "_Steps":
        """Draw them as `local_update` does, first of all the seed of dropout, which is not used here.

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


def stacked_update(network: Network, shares: Sequence[Share], loss: str, settings: TrainSettings) -> list[Trained]:
    """Train each client's model on its own data, all of them side by side; see `local_update`.

    Parameters
    ----------
    network
        What the models are.
    shares
        Of n clients, in any order. Clients of like numbers of samples together cost least: one with fewer waits for
        those with more, and batches are filled up to the largest one.
    loss, settings
        See `local_update`; the settings are plain (`TrainSettings.is_plain`).

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
        """Return inputs (n, b, ...), targets (n b, ...), and whether a sample counts, 1 or 0 (n, b)."""
        sizes = self._sizes[step, :active]
        width = int(sizes.max())
        places = self._places[step, :active, :width].reshape(-1)
        weights = self._one
        if sizes.min() < width:
            weights = (self._columns[:width] < self._sizes_there[step, :active, None]).float()
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
