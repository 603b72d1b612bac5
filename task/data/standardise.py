"""Standardising inputs: each column, or each channel of images, to mean 0 and standard deviation 1."""

from dataclasses import dataclass

import numpy as np

from florets.task.data.dataset import FloatArray

_FEWEST = 30
"""Samples of a file below which their own mean and deviation say too little about where they come from."""


@dataclass(frozen=True)
class Scale:
    """What one owner of data standardises by: the mean and the standard deviation of its own training inputs.

    Units, offsets and gains of its instruments go, and so does everything else that moves a whole column: that one
    owner's cases are more severe than another's, for instance.
    """

    mean: FloatArray
    std: FloatArray

    @classmethod
    def of(cls, x: FloatArray) -> "Scale":
        """Return the scale of inputs (n, columns) or (n, channels, height, width); a constant keeps its unit."""
        axes = (0,) if x.ndim == 2 else (0, *range(2, x.ndim))
        mean = x.mean(axis=axes, keepdims=True, dtype=np.float64)
        std = x.std(axis=axes, keepdims=True, dtype=np.float64)
        # A column of equal float32 values has a deviation of rounding errors.
        std = np.where(std > 1e-6 * np.abs(mean), std, 1.0)
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def apply(self, x: FloatArray) -> FloatArray:
        """Return the inputs, standardised."""
        scaled: FloatArray = (x - self.mean) / self.std
        return scaled


def standardised_alone(x: FloatArray) -> FloatArray:
    """Return new inputs standardised by themselves, as a run's clients standardised theirs.

    Raises
    ------
    ValueError
        If there are too few to say what their scale is.
    """
    if len(x) < _FEWEST:
        raise ValueError(
            f"the run's clients standardise their inputs by their own data (task.data_options.standardise), and "
            f"{len(x)} samples are too few for that: give a file with at least {_FEWEST}."
        )
    return Scale.of(x).apply(x)
