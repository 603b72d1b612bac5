"""Holding out a part of a client's training data, on which the losses of models are taken."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from florets.task.task import ClientData

ONE_IN = 5
"""One sample in so many is held out."""

Part = tuple[Tensor, Tensor]
"""Inputs and targets of some of a client's samples."""


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
        The data with the n - max(1, n // 5) samples that are left, and the inputs and targets held out, each in the
        order of `data`. A single sample is trained on and held out: there is no other.
    """
    count = len(data.x_train)
    if count < 2:
        return data, (data.x_train, data.y_train)
    held = np.zeros(count, dtype=bool)
    held[rng.permutation(count)[: max(1, count // ONE_IN)]] = True
    (x_held, y_held), (x_train, y_train) = (_rows(data, mask) for mask in (held, ~held))
    return replace(data, x_train=x_train, y_train=y_train), (x_held, y_held)


def _rows(data: ClientData, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Part:
    rows = torch.from_numpy(np.flatnonzero(mask)).to(data.x_train.device)
    x = data.x_train[rows]
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x, data.y_train[rows]
