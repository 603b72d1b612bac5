"""`FrozenGroups`: groups found by what clients learn of one common model, by which new clients are assigned."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.core.placement import Centres, place
from florets.task.wire.folds import RowForm

FIT, FIT_ONE = 0.5, 0.1
"""Share of a group's usual cosine below which the group does not fit a client; the one row of a client with few
samples is noisier."""


@dataclass(frozen=True)
class FrozenGroups:
    """The common model, how clients train it, and the groups' centres. Group g trains model g.

    Attributes
    ----------
    common
        The one model that all rows come from.
    folds, size, steps, rate
        Of a client's data, and of the training on them; a client with too few samples trains once, on all of them.
    form, seed
        How rows are compressed, and the draws of that.
    centres
        See `florets.strategies.core.placement`.
    """

    common: Models
    folds: int
    size: int
    steps: int
    rate: float
    form: RowForm
    seed: int
    centres: Centres

    def folds_of(self, num_examples: int) -> int:
        """Return how many folds a client with so many samples has."""
        return self.folds if num_examples >= self.folds * self.size else 1

    def group_of(self, rows: NDArray[np.floating]) -> tuple[int, float]:
        """Return the group of a client that sent these rows (m, width), -1 where none fits, and the cosine."""
        return place(rows.astype(np.float64), self.centres, FIT_ONE if len(rows) == 1 else FIT)

    def group_in_a_run(self, rows: NDArray[np.floating]) -> tuple[int, float]:
        """Return the same for a client that takes part in training: one with few samples joins the nearest group.

        Its one row is too noisy to leave it without a model.
        """
        return place(rows.astype(np.float64), self.centres, None if len(rows) == 1 else FIT)
