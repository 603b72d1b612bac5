"""Losses and tests of models on several clients' data at once, in eval mode, where samples do not see each other.

A pass over all clients' samples one after the other costs far fewer calls than a pass for each client. Results agree
with those of `florets.task.training.losses` to rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.client_data import Part
from florets.task.training.losses import CHUNK, Evaluated, per_sample_losses, targets_of
from florets.task.training.modules import load, on_host, set_mode
from florets.task.training.scores import Scores, scores_of
from florets.task.training.vectorised import Convolutions, Dense, Network, device_samples, network_of

_CHUNK = 2000
"""Samples of one forward pass: those of small clients together, where a call costs more than its arithmetic."""

_MULTIPLICATIONS, _LEAST_ROWS = 5 * 10**7, 64
"""Of one product of dense layers: enough to hide what a call costs. Fewer samples than these make a slow product."""

_CHUNK_OF_CONVOLUTIONS = 100
"""Samples of one pass through all models: what their convolutions return should stay in the processor's cache."""


def joined_losses(
    module: Module, states: Sequence[Mapping[str, Tensor]], parts: Sequence[Part], loss: str
) -> NDArray[np.float64]:
    """Return the mean loss of each of K models on each of n clients' data, (n, K).

    Parameters
    ----------
    module
        A module of the models' shape, used as scratch.
    states
        K state dicts.
    parts
        Each client's inputs and targets, at least one sample.
    loss
        See `florets.task.training.losses.per_sample_losses`.
    """
    network = network_of(module)
    if isinstance(network, Dense) and network.first is not None:
        return dense_losses(network, states, parts, loss)[0]
    if isinstance(network, Convolutions):
        return _means_of(_side_by_side(network, states, parts, loss), parts)
    each = []
    for state in states:
        load(module, state)
        each.append(_passed(module, state, parts, loss)[1])
    return _means_of(torch.stack(each), parts)


def dense_losses(
    network: Dense,
    states: Sequence[Mapping[str, Tensor]],
    parts: Sequence[Part],
    loss: str,
    choose: Callable[[NDArray[np.float64]], int] | None = None,
) -> tuple[NDArray[np.float64], list[Tensor]]:
    """Return the same as `joined_losses` for dense networks: the first layer of all models is one product.

    Parameters
    ----------
    network
        What the models are; its first layer is a linear one.
    choose
        Says from a client's losses (K,) which model it takes.

    Returns
    -------
    ndarray, list of Tensor
        Losses (n, K); and what the first layer of the model that each client takes says of its inputs, (m, h), which
        training begins with. Empty without `choose`.
    """
    assert network.first is not None
    stacks = {name: torch.stack([state[name] for state in states]) for name in network.names}
    on_cpu = max(_LEAST_ROWS, min(_CHUNK, _MULTIPLICATIONS // stacks[network.first.weight].numel()))
    most = _samples_at_once(network, len(states), states[0], parts, on_cpu)
    chunk = _samples_at_once(network, len(states), states[0], parts, _CHUNK)
    found, firsts, each = np.empty((len(parts), len(states))), [], []
    for begin, end in _groups(parts, most):
        x, y = _joined(parts[begin:end])
        layers, losses = [], []
        with torch.no_grad():
            for start in range(0, x.shape[0], chunk):
                x_part = x[start : start + chunk]
                targets = targets_of(x_part, y[start : start + chunk], loss)
                first = network.first_outputs(stacks, x_part.flatten(1))
                if choose is not None:
                    layers.append(first)
                outputs = network.after_first(stacks, first)
                losses.append(torch.stack([per_sample_losses(one, targets, loss) for one in outputs]))
        own = torch.cat(losses, dim=1)
        if choose is None:
            # Fetched after the last group.
            each.append(own)
        else:
            found[begin:end] = _means_of(own, parts[begin:end])
            outputs_of = layers[0] if len(layers) == 1 else torch.cat(layers, dim=1)
            starts = [*_starts(parts[begin:end]).tolist(), x.shape[0]]
            chosen = [choose(means) for means in found[begin:end]]
            firsts += [outputs_of[model, a:b].clone() for model, (a, b) in zip(chosen, pairwise(starts), strict=True)]
    return (_means_of(torch.cat(each, dim=1), parts) if each else found), firsts


def joined_tests(module: Module, state: Mapping[str, Tensor], parts: Sequence[Part], loss: str) -> list[Evaluated]:
    """Return what one model comes to on each client's data; see `florets.task.training.losses.evaluated`."""
    load(module, state)
    said, of_samples = _passed(module, state, parts, loss)
    # Of reconstructions there are no scores, and they are as large as the data.
    outputs, losses, y = on_host(
        said[:0] if loss == "reconstruction" else said, of_samples, torch.cat([own for _, own in parts])
    )
    means = _means(losses.double().numpy(), parts)
    starts = _starts(parts)
    classes = loss == "cross_entropy"
    correct = np.add.reduceat(outputs.argmax(dim=1).numpy() == y.numpy(), starts, dtype=np.int64) if classes else None
    values, targets = outputs.flatten(1).double().numpy(), y.numpy()
    found = []
    for client, (start, (_, own)) in enumerate(zip(starts, parts, strict=True)):
        rows = slice(start, start + own.shape[0])
        scored = loss != "reconstruction"
        scores = scores_of(values[rows], targets[rows], loss) if scored else Scores()
        accuracy = None if correct is None else int(correct[client]) / own.shape[0]
        found.append(Evaluated(float(means[client]), accuracy, scores, values[rows] if scored else None))
    return found


def _side_by_side(
    network: Network, states: Sequence[Mapping[str, Tensor]], parts: Sequence[Part], loss: str
) -> Tensor:
    """Return each sample's loss under each of K models (K, n): each layer of all models by one call."""
    stacks = {name: torch.stack([state[name] for state in states]) for name in network.names}
    losses = []
    with torch.inference_mode():
        most = _samples_at_once(network, len(states), states[0], parts, _CHUNK_OF_CONVOLUTIONS)
        for x_part, y_part in _passes(parts, most):
            targets = targets_of(x_part, y_part, loss)
            outputs = network.outputs(stacks, x_part.unsqueeze(0))
            losses.append(torch.stack([per_sample_losses(one, targets, loss) for one in outputs]))
        return torch.cat(losses, dim=1)


def _samples_at_once(
    network: Network, models: int, state: Mapping[str, Tensor], parts: Sequence[Part], on_cpu: int
) -> int:
    """Return the samples of one pass: a CPU's are few enough for its cache, a GPU's as many as its memory holds."""
    x = parts[0][0]
    return on_cpu if x.device.type == "cpu" else device_samples(network, models, state, x.shape[1:])


def _passes(parts: Sequence[Part], most: int) -> Iterator[Part]:
    """Yield all clients' samples, one after the other, in passes of so many: copied pass by pass, not all at once."""
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


def _groups(parts: Sequence[Part], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of clients that have at most so many samples together, or are one."""
    begin, count = 0, 0
    for place, (x, _) in enumerate(parts):
        if place > begin and count + x.shape[0] > most:
            yield begin, place
            begin, count = place, 0
        count += x.shape[0]
    yield begin, len(parts)


def _joined(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def _starts(parts: Sequence[Part]) -> NDArray[np.int64]:
    return np.cumsum([0, *(x.shape[0] for x, _ in parts[:-1])])


def _means(losses: NDArray[np.float64], parts: Sequence[Part]) -> NDArray[np.float64]:
    """Return the mean of each client's losses."""
    means: NDArray[np.float64] = np.add.reduceat(losses, _starts(parts)) / [x.shape[0] for x, _ in parts]
    return means


def _means_of(losses: Tensor, parts: Sequence[Part]) -> NDArray[np.float64]:
    """Return the means (n, K) of each of n clients' losses under each of K models, from all samples' (K, samples)."""
    each = on_host(losses)[0].double().numpy()
    return np.stack([_means(own, parts) for own in each], axis=1)


def _passed(module: Module, state: Mapping[str, Tensor], parts: Sequence[Part], loss: str) -> tuple[Tensor, Tensor]:
    """Return the outputs of all samples, and each one's loss, of a module that `state` has been loaded into."""
    set_mode(module, False)
    network = network_of(module)
    assert network is not None
    chunk = CHUNK if isinstance(network, Convolutions) else _CHUNK
    outputs, losses = [], []
    with torch.inference_mode():
        for x_part, y_part in _passes(parts, _samples_at_once(network, 1, state, parts, chunk)):
            outputs.append(module(x_part))
            losses.append(per_sample_losses(outputs[-1], targets_of(x_part, y_part, loss), loss))
        return torch.cat(outputs), torch.cat(losses)
