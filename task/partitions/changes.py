"""Changes that clusters make to their samples: turns, mirror images and renamed labels, combined."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from florets.task.partitions.rotation import check_images, check_turns, turned
from florets.task.partitions.shard import Transform


@dataclass(frozen=True)
class Change:
    """What one cluster does to inputs (n, *input_shape) and targets (n,), in the order of the fields.

    Parameters
    ----------
    mirror
        Whether left and right trade places.
    angle
        Turn counter-clockwise, in degrees.
    renamed
        The label that stands in place of each, int64 (C,); None leaves them.
    """

    mirror: bool = False
    angle: float = 0.0
    renamed: IntArray | None = None

    def __call__(self, x: FloatArray, y: TargetArray) -> tuple[FloatArray, TargetArray]:
        """Return the changed inputs and targets."""
        if self.mirror:
            x = np.ascontiguousarray(x[..., ::-1])
        if self.angle % 360:
            x, y = turned(x, y, self.angle)
        return x, y if self.renamed is None else self.renamed[y]

    def __str__(self) -> str:
        """Name what is done, in the order in which it is done."""
        done = [
            "mirrored" if self.mirror else "",
            f"rotated by {self.angle:g}°" if self.angle % 360 else "",
            "" if self.renamed is None else f"labels {' '.join(map(str, self.renamed))}",
        ]
        return ", ".join(filter(None, done)) or "unchanged"


def combinations(
    data: Dataset, angles: Sequence[float] | None, mirror: bool, label_shifts: Sequence[int] | None
) -> list[Transform | None]:
    """Return every combination of the changes, None where nothing changes; angles vary fastest, then mirror images.

    The parameters are those of `florets.task.partitions.composed.composed`.
    """
    turns = [0.0] if angles is None else angles
    if angles is not None or mirror:
        check_images(data, "composed with angles or mirror")
        check_turns(data, turns)
    if not turns or len({turn % 360 for turn in turns}) < len(turns):
        raise ValueError(f"task.partition_options.angles={list(turns)} must list different turns, at least one.")
    return [
        None if renamed is None and not (mirrored or turn % 360) else Change(mirrored, turn, renamed)
        for renamed, mirrored, turn in product(_namings(data, label_shifts), [False, True][: 1 + mirror], turns)
    ]


def _namings(data: Dataset, label_shifts: Sequence[int] | None) -> list[IntArray | None]:
    """Return the names of the labels by each shift, None for their own."""
    if label_shifts is None:
        return [None]
    if data.y_train.dtype != np.int64:
        raise ValueError(
            "task.partition_options.label_shifts renames class labels, but the data set's targets are values: leave "
            "it out."
        )
    shifts = [shift % data.num_outputs for shift in label_shifts]
    if not shifts or len(set(shifts)) < len(shifts):
        raise ValueError(
            f"task.partition_options.label_shifts={label_shifts} must be different numbers, also modulo the "
            f"{data.num_outputs} labels."
        )
    return [(np.arange(data.num_outputs) + shift) % data.num_outputs if shift else None for shift in shifts]
