"""Local training of dense networks by plain steps on all samples, in the terms of the samples and not of weights.

On all samples the first layer's gradient is a sum of the inputs, the same inputs at every step. So its weights need
not be moved from step to step: what the layer returns for the samples moves by their inner products, which do not
change, and of n samples of d values those are n x n numbers in place of n x d. Results agree to rounding with those
of `florets.task.training.loop`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from florets.task.client_data import Part
from florets.task.training.loop import PlainOptimizer
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.networks import Dense
from florets.task.training.settings import Training
from florets.task.training.vectorised import LEAST_ROWS, MOST_ROWS, MULTIPLICATIONS, Share, Trained, join, means_of

_LEAST_GAIN = 1.5
"""Below that ratio of the two ways' multiplications the plain one is as fast."""

_CALLS = 200_000
"""Multiplications that take as long as autograd's calls of a client's step, which linear models can do without."""


def pays(network: Dense, state: Mapping[str, Tensor], most: int, training: Training, in_numpy: bool = False) -> bool:
    """Say whether `full_steps_update` does the training of clients, and with far fewer multiplications.

    `state` is one of the models, `most` the samples of the largest client. `in_numpy`: the other way is that of
    `florets.task.training.linear`, which has no calls of autograd.
    """
    if network.first is None or not training.is_gradient_descent or training.batch_size < most:
        return False
    width, size = state[network.first.weight].shape
    steps = training.num_steps(1)
    # Forward and back at every step; or forward, the inner products and the last weights once, and their use.
    by_weights, by_samples = 2 * steps * size * width, 2 * size * width + most * size + steps * most * width
    saved = most * (by_weights - by_samples)
    return by_weights > _LEAST_GAIN * by_samples and (not in_numpy or saved > steps * _CALLS)


def full_steps_update(network: Dense, shares: Sequence[Share], loss: str, training: Training) -> list[Trained]:
    """Train each client's model on its own data, where that `pays`; see `vectorised.stacked_update`.

    Source: for W' = W - r sum D_s^T X, X W'^T = X W^T - r X X^T sum D_s; the dual form of gradient descent on a
    linear layer.
    """
    first = network.first
    assert first is not None
    rate, sizes = training.learning_rate, [len(share.x) for share in shares]
    most, inputs = max(sizes), [share.x.flatten(1) for share in shares]
    targets = torch.cat([_padded(targets_of(own.x, own.y, loss), most) for own in shares])
    counts = torch.tensor(sizes, dtype=torch.float32)
    # What fills up a smaller client's samples counts nothing, and so moves nothing.
    weights = (torch.arange(most) < counts[:, None]).float()
    # Client by client: these products are large enough to lose nothing by it.
    products = torch.zeros(len(shares), most, most)
    for own, product in zip(inputs, products, strict=True):
        product[: len(own), : len(own)] = own @ own.T
    if first.bias is not None:
        # A bias is the weight of an input that is always 1.
        products += 1
    start = pad_sequence(
        [_first_outputs(share, own, first.weight, first.bias) for share, own in zip(shares, inputs, strict=True)],
        batch_first=True,
    )
    others = [name for name in network.names if name not in (first.weight, first.bias)]
    rest = {name: torch.stack([share.state[name] for share in shares]) for name in others}
    for parameter in rest.values():
        parameter.requires_grad_()
    optimizer = PlainOptimizer(list(rest.values()), training) if rest else None
    z, means = start.clone().requires_grad_(), torch.zeros(len(shares))
    for step in range(training.num_steps(1)):
        if step > 0:
            assert z.grad is not None
            with torch.no_grad():
                torch.baddbmm(start, products, z.grad, alpha=-rate, out=z)
        for parameter in rest.values():
            parameter.grad = None
        outputs = network.after_first(rest, z)
        losses = per_sample_losses(outputs.flatten(0, 1), targets, loss).view(weights.shape) * weights
        means = losses.sum(dim=1) / counts
        means.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
        if optimizer is not None:
            optimizer.step()
    # Never set back: the sum over all steps.
    slopes = z.grad
    assert slopes is not None
    arrays = {name: stack.detach().numpy() for name, stack in rest.items()}
    found = []
    for row, (share, own) in enumerate(zip(shares, inputs, strict=True)):
        slope = slopes[row, : len(own)]
        mine = {first.weight: torch.addmm(share.state[first.weight], slope.T, own, alpha=-rate).numpy()}
        if first.bias is not None:
            mine[first.bias] = (share.state[first.bias] - rate * slope.sum(dim=0)).numpy()
        # In the order of the state dict.
        mine = {name: mine[name] if name in mine else arrays[name][row] for name in network.names}
        found.append(Trained(mine, means[row].item(), training.num_steps(1) * sizes[row]))
    return found


def losses_and_first_outputs(
    network: Dense,
    states: Sequence[Mapping[str, Tensor]],
    parts: Sequence[Part],
    loss: str,
    choose: Callable[[NDArray[np.float64]], int],
) -> tuple[NDArray[np.float64], list[Tensor]]:
    """Return the losses (n, K) as `joined_losses`, and what each client's training of its choice can begin with.

    The latter are the outputs (m, h) of the chosen model's first layer, a linear one, for the client's inputs.
    `choose` says from a client's losses (K,) which model it takes.
    """
    assert network.first is not None
    stacks = {name: torch.stack([state[name] for state in states]) for name in network.names}
    most = max(LEAST_ROWS, min(MOST_ROWS, MULTIPLICATIONS // stacks[network.first.weight].numel()))
    losses, firsts = np.empty((len(parts), len(states))), []
    for begin, end in _groups(parts, most):
        x, y = join(parts[begin:end])
        layers, each = [], []
        with torch.no_grad():
            for start in range(0, len(x), MOST_ROWS):
                x_part, y_part = x[start : start + MOST_ROWS], y[start : start + MOST_ROWS]
                targets = targets_of(x_part, y_part, loss)
                layers.append(network.first_outputs(stacks, x_part.flatten(1)))
                outputs = network.after_first(stacks, layers[-1])
                each.append(torch.stack([per_sample_losses(one, targets, loss) for one in outputs]))
        losses[begin:end] = means_of(torch.cat(each, dim=1), parts[begin:end])
        first = layers[0] if len(layers) == 1 else torch.cat(layers, dim=1)
        ends = np.cumsum([0, *(len(own) for own, _ in parts[begin:end])]).tolist()
        chosen = [choose(own) for own in losses[begin:end]]
        firsts += [first[model, a:b].clone() for model, (a, b) in zip(chosen, pairwise(ends), strict=True)]
    return losses, firsts


def _groups(parts: Sequence[Part], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of clients that have at most so many samples together, or are one."""
    begin, count = 0, 0
    for place, (x, _) in enumerate(parts):
        if place > begin and count + x.shape[0] > most:
            yield begin, place
            begin, count = place, 0
        count += x.shape[0]
    yield begin, len(parts)


def _first_outputs(share: Share, x: Tensor, weight: str, bias: str | None) -> Tensor:
    """Return what the first layer says of a client's samples before training."""
    if share.first is not None:
        return share.first
    turned = share.state[weight].T
    return x @ turned if bias is None else torch.addmm(share.state[bias], x, turned)


def _padded(targets: Tensor, size: int) -> Tensor:
    """Return targets (n, ...) as (size, ...)."""
    if len(targets) == size:
        return targets
    return torch.cat([targets, targets[:1].expand(size - len(targets), *targets.shape[1:])])
