"""Changes that clusters make to their samples: turns, mirror images, renamed labels, noise and blur, combined."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from florets.task.partitions.rotation import check_images, check_turns, turned
from florets.task.partitions.shard import Transform

# Draws of a permutation that no cluster has yet, before giving up.
TRIES = 1000


@dataclass(frozen=True)
class Change:
    """What one cluster does to inputs (n, *input_shape) and targets (n,), in the order of the fields.

    Parameters
    ----------
    mirror
        Whether left and right trade places.
    angle
        Turn counter-clockwise, in degrees.
    blur
        Standard deviation of a Gaussian filter, in pixels.
    noise
        Standard deviation of Gaussian noise on every number of an input; nothing is clipped. A sample's noise follows
        from `seed` and the sample: it is the same whoever holds it, and at every call.
    renamed
        The label that stands in place of each, int64 (C,); None leaves them.
    seed
        Of the noise.
    """

    mirror: bool = False
    angle: float = 0.0
    blur: float = 0.0
    noise: float = 0.0
    renamed: IntArray | None = None
    seed: int = 0

    def __call__(self, x: FloatArray, y: TargetArray) -> tuple[FloatArray, TargetArray]:
        """Return the changed inputs and targets."""
        if self.mirror:
            x = np.ascontiguousarray(x[..., ::-1])
        if self.angle % 360:
            x, y = turned(x, y, self.angle)
        if self.blur:
            from scipy.ndimage import gaussian_filter  # blurred images alone need it

            x = gaussian_filter(x, self.blur, axes=(-2, -1))
        if self.noise:
            x = x + np.float32(self.noise) * self._noise(x)
        return x, y if self.renamed is None else self.renamed[y]

    def __str__(self) -> str:
        """Name what is done, in the order in which it is done."""
        done = [
            "mirrored" if self.mirror else "",
            f"turned by {self.angle:g}°" if self.angle % 360 else "",
            f"blur {self.blur:g}" if self.blur else "",
            f"noise {self.noise:g}" if self.noise else "",
            "" if self.renamed is None else f"labels {' '.join(map(str, self.renamed))}",
        ]
        return ", ".join(filter(None, done)) or "unchanged"

    def _noise(self, x: FloatArray) -> FloatArray:
        drawn = np.empty_like(x)
        for row, sample in enumerate(x):
            rng = np.random.default_rng([self.seed, zlib.crc32(sample.tobytes())])
            rng.standard_normal(out=drawn[row], dtype=np.float32)
        return drawn


def combinations(
    data: Dataset,
    rng: np.random.Generator,
    angles: Sequence[float] | None,
    mirror: bool,
    label_shifts: Sequence[int] | None,
    label_permutations: int,
    noise: Sequence[float] | None,
    blur: Sequence[float] | None,
) -> list[Transform | None]:
    """Return every combination of the changes, None where nothing changes; angles vary fastest, then mirror images.

    The parameters are those of `florets.task.partitions.composed.composed`.
    """
    turns, widths, levels = _listed("angles", angles), _listed("blur", blur), _listed("noise", noise)
    if angles is not None or mirror or blur is not None:
        check_images(data, "composed with angles, mirror or blur")
        check_turns(data, turns)
    for name, values in (("noise", levels), ("blur", widths)):
        if not all(0 <= value < np.inf for value in values):
            raise ValueError(f"task.partition_options.{name}={list(values)} must be finite numbers of at least 0.")
    if len({turn % 360 for turn in turns}) < len(turns):
        raise ValueError(f"task.partition_options.angles={list(turns)} holds one turn twice: clusters must differ.")
    namings = _namings(data, rng, label_shifts, label_permutations)
    seed = int(rng.integers(2**32)) if noise is not None else 0
    changes: list[Transform | None] = []
    for renamed, level, width, mirrored, turn in product(namings, levels, widths, [False, True][: 1 + mirror], turns):
        same = renamed is None and not (level or width or mirrored or turn % 360)
        changes.append(None if same else Change(mirrored, turn, width, level, renamed, seed))
    return changes


def _listed(name: str, values: Sequence[float] | None) -> Sequence[float]:
    if values is None:
        return [0.0]
    if not values or len(set(values)) < len(values):
        raise ValueError(f"task.partition_options.{name}={list(values)} must list different numbers, at least one.")
    return values


def _namings(
    data: Dataset, rng: np.random.Generator, label_shifts: Sequence[int] | None, label_permutations: int
) -> list[IntArray | None]:
    """Return the names of the labels in every combination of permutations and shifts, None for their own."""
    if label_permutations < 1:
        raise ValueError(f"task.partition_options.label_permutations={label_permutations} must be at least 1.")
    if label_shifts is None and label_permutations == 1:
        return [None]
    if data.y_train.dtype != np.int64:
        raise ValueError(
            "task.partition_options label_shifts and label_permutations rename class labels, but the data set's "
            "targets are values: leave them out."
        )
    own = np.arange(data.num_outputs)
    permutations = [own]
    for _ in range(TRIES):
        if len(permutations) == label_permutations:
            break
        drawn = rng.permutation(data.num_outputs)
        if not any(np.array_equal(drawn, known) for known in permutations):
            permutations.append(drawn)
    else:
        raise ValueError(
            f"task.partition_options.label_permutations={label_permutations}: {data.num_outputs} labels do not have "
            f"that many; lower it."
        )
    shifts = [0] if label_shifts is None else [shift % data.num_outputs for shift in label_shifts]
    if not shifts or len(set(shifts)) < len(shifts):
        raise ValueError(
            f"task.partition_options.label_shifts={label_shifts} must be different numbers, also modulo the "
            f"{data.num_outputs} labels."
        )
    every = [(permutation + shift) % data.num_outputs for permutation in permutations for shift in shifts]
    if len({tuple(renamed) for renamed in every}) < len(every):
        raise ValueError(
            f"task.partition_options label_shifts={label_shifts} of {label_permutations} label_permutations name the "
            "labels twice in one way: clusters must differ. Leave out one of them."
        )
    return [None if np.array_equal(renamed, own) else renamed for renamed in every]
