"""Results of a client: of its tests, and the cost of its work, in messages and in reports; without Flower."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class PartSums:
    """Sums of one test on one client, by which results over all records can be told; of classes or of values."""

    figures: FloatArray
    """Its own (F,) in the order of `CLASS_MEASURES` or `VALUE_MEASURES`; NaN where one is not defined."""
    replicates: npt.NDArray[np.float32]
    """The same of bootstrap resamples of its records (`REPLICATES`, F)."""
    sums: FloatArray
    """Classes: sum of the log losses (1,). Values: mean of the targets, sum of their squared deviations from it, sums
    of the squared and of the absolute errors (4,)."""
    confusion: IntArray
    """Label, prediction and count (E, 3), sorted, counts at least 1; none of values."""
    histogram: IntArray
    """For each class how many of the other classes' records, and of its own, have a score for it in each bin, in
    the order of the scores, (C, 2, `BINS`); of two classes for class 1 alone. None of values, or of more classes than
    `MOST_CURVES`."""
    deviations: FloatArray
    """Sums of the targets' absolute deviations from each of `places` (`DEVIATIONS`,); none of classes."""


@dataclass(frozen=True)
class Evaluation:
    """A client's assigned model on that client's own test set; `accuracy` is None where there are no labels.

    `validation` is the same on its validation data, `tuned` that of a copy that the client fine-tuned first; `sums`
    and `train` are those of the test and of the training targets.
    """

    num_examples: int
    loss: float
    accuracy: float | None
    validation: "Evaluation | None" = None
    tuned: "Evaluation | None" = None
    scores: Mapping[str, float] = field(default_factory=dict)
    sums: PartSums | None = field(default=None, compare=False)
    train: npt.NDArray[np.float64] | None = field(default=None, compare=False)

    def __deepcopy__(self, _: object) -> "Evaluation":
        # Never changed: each round begins with a copy of the state, which holds one for every client.
        return self


@dataclass(frozen=True)
class Work:
    """Cost of handling one message: seconds, and passes of samples forward and back, or forward (`losses`)."""

    seconds: float = 0.0
    gradients: int = 0
    losses: int = 0


def total_work(parts: Iterable[Work]) -> Work:
    """Return the cost of several replies together."""
    seconds, gradients, losses = 0.0, 0, 0
    for part in parts:
        seconds, gradients, losses = seconds + part.seconds, gradients + part.gradients, losses + part.losses
    return Work(seconds, gradients, losses)
