"""One client's data as tensors, and the parts of them that are held out or drawn for a round."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from florets.task.data.splits import drawn, split_rows
from florets.task.settings import left_after

Part = tuple[Tensor, Tensor]
"""Inputs and targets of some of a client's samples."""

TestedOn = Literal["test", "validation"]
"""Data that a model is tested on."""


@dataclass(frozen=True)
class ClientData:
    """One client's data, ready for the model.

    Inputs are float32 (n, *input_shape), images with the channels last in memory, where a CPU's convolutions are
    faster; targets int64 or float32 (n,). What is held out for validation is None where nothing is. Training samples
    of one number in `subjects` (n,) belong together; None: each stands for itself.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    cluster: int
    x_validation: Tensor | None = None
    y_validation: Tensor | None = None
    subjects: Tensor | None = None

    def part(self, name: TestedOn) -> Part:
        """Return inputs and targets of a part that is not trained on."""
        if name == "test":
            return self.x_test, self.y_test
        if self.x_validation is None or self.y_validation is None:
            raise ValueError("this client has no validation data: give task.validation_fraction.")
        return self.x_validation, self.y_validation


def hold_out(data: ClientData, rng: np.random.Generator, stratify: bool = False) -> tuple[ClientData, Part]:
    """Split a client's training data into those that it trains on and a fifth that is held out.

    On its training data a client prefers the model that it has just trained, whatever its group.
    """
    count = len(data.x_train)
    if data.subjects is not None:
        held = _of_subjects(data.subjects, count - left_after(count), rng)
    else:
        held = drawn(*_targets(data, stratify), count - left_after(count), rng, stratify)
    return _split_off(data, held) if held.any() else (data, (data.x_train, data.y_train))


def with_validation(
    data: ClientData, fraction: float, rng: np.random.Generator, stratify: bool = False
) -> ClientData:
    """Return the data with a fraction of the training samples, rounded, as validation data; one or more of either."""
    count = len(data.x_train)
    if count < 2:
        raise ValueError(
            f"task.validation_fraction={fraction}: this client has {count} training sample, and needs two."
        )
    targets, values = _targets(data, stratify)
    if stratify or data.subjects is not None:
        held = np.zeros(count, dtype=bool)
        subjects = None if data.subjects is None else data.subjects.cpu().numpy()
        held[split_rows(targets, subjects, fraction, rng, values, stratify)[1]] = True
    else:
        held = drawn(targets, values, min(max(round(fraction * count), 1), count - 1), rng, stratify=False)
    left, (x, y) = _split_off(data, held)
    return replace(left, x_validation=x, y_validation=y)


def _targets(data: ClientData, stratify: bool) -> tuple[NDArray[np.float64], bool]:
    """Return the targets of a client's training samples, and whether they are values."""
    values, stratify = data.y_train.is_floating_point(), stratify and data.y_train.dim() == 1
    return data.y_train.cpu().numpy().astype(np.float64) if stratify else np.zeros(len(data.y_train)), values


def _of_subjects(subjects: Tensor, wanted: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw whole subjects with at most so many samples, or the smallest; of one alone nothing."""
    whose = subjects.cpu().numpy()
    different, sizes = np.unique(whose, return_counts=True)
    taken, count = list[int](), 0
    for place in rng.permutation(len(different))[1:].tolist():
        if count + sizes[place] <= wanted:
            taken.append(place)
            count += sizes[place]
    if not taken and len(different) > 1:
        taken = [int(sizes.argmin())]
    return np.isin(whose, different[taken])


def _split_off(data: ClientData, held: NDArray[np.bool_]) -> tuple[ClientData, Part]:
    """Return the data without some training samples, and those, each in their old order."""
    every = (data.x_train, data.y_train)
    (x_held, y_held), (x_train, y_train) = (_rows(every, np.flatnonzero(mask)) for mask in (held, ~held))
    subjects = data.subjects
    if subjects is not None:
        subjects = subjects[torch.from_numpy(~held).to(subjects.device)]
    return replace(data, x_train=x_train, y_train=y_train, subjects=subjects), (x_held, y_held)


def draw_samples(part: Part, count: int, rng: np.random.Generator) -> Part:
    """Return `count` of the samples of a part, drawn without replacement, in their old order."""
    return _rows(part, np.sort(rng.choice(len(part[0]), count, replace=False)))


def _rows(part: Part, rows: NDArray[np.intp]) -> Part:
    at = torch.from_numpy(rows).to(part[0].device)
    x = part[0][at]
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x, part[1][at]
