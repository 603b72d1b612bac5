"""Parts of a client's training data: held out for the losses of models or for validation, or drawn for a round."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from florets.task.client_data import ClientData, Part
from florets.task.held_out_count import left_after


def hold_out(data: ClientData, rng: np.random.Generator) -> tuple[ClientData, Part]:
    """Split a client's training data into those that it trains on and a fifth that is held out.

    On its training data a client prefers the model that it has just trained, whatever its group; on data that no
    model was trained on it does not.

    Parameters
    ----------
    data
        n training samples; the test data stay as they are.
    rng
        Draws which.

    Returns
    -------
    tuple
        The data with the samples that are left (`left_after`), and the inputs and targets held out, each in the order
        of `data`. A single sample is trained on and held out: there is no other.
    """
    count = len(data.x_train)
    if count < 2:
        return data, (data.x_train, data.y_train)
    return _split_off(data, count - left_after(count), rng)


def with_validation(data: ClientData, fraction: float, rng: np.random.Generator) -> ClientData:
    """Return the data with a fraction of the training samples, rounded, as validation data; at least one of either.

    Raises
    ------
    ValueError
        If there are fewer than two training samples.
    """
    count = len(data.x_train)
    if count < 2:
        raise ValueError(
            f"task.validation_fraction={fraction}: this client has {count} training sample, and needs two to hold "
            "one out."
        )
    left, (x, y) = _split_off(data, min(max(round(fraction * count), 1), count - 1), rng)
    return replace(left, x_validation=x, y_validation=y)


def _split_off(data: ClientData, count: int, rng: np.random.Generator) -> tuple[ClientData, Part]:
    """Return the data without `count` training samples, and those, each in their old order."""
    held = np.zeros(len(data.x_train), dtype=bool)
    held[rng.permutation(len(held))[:count]] = True
    every = (data.x_train, data.y_train)
    (x_held, y_held), (x_train, y_train) = (_rows(every, np.flatnonzero(mask)) for mask in (held, ~held))
    return replace(data, x_train=x_train, y_train=y_train), (x_held, y_held)


def draw_samples(part: Part, count: int, rng: np.random.Generator) -> Part:
    """Return `count` of the samples of a part, drawn without replacement, in their old order."""
    return _rows(part, np.sort(rng.choice(len(part[0]), count, replace=False)))


def _rows(part: Part, rows: NDArray[np.intp]) -> Part:
    at = torch.from_numpy(rows).to(part[0].device)
    x = part[0][at]
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x, part[1][at]
