"""The file that `florets predict` writes: one row for each sample."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MOST_CLASSES = 50
"""Classes up to which the probability of each has a column."""


@dataclass(frozen=True)
class Sheet:
    """What stands in the file.

    Parameters
    ----------
    samples
        What each of the n samples is called.
    ids
        Cells (n,) of the columns that name a record.
    what
        Heading of the predictions.
    predictions
        Class names, or numbers, (n,).
    classes
        Names of the C classes; empty: there are none.
    probabilities
        (n, C), None where there are no classes.
    counts
        Further columns of integers (n,).
    """

    samples: Sequence[str]
    what: str
    predictions: Sequence[str]
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Sequence[str] = ()
    probabilities: NDArray[np.float64] | None = None
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the file; raise FileExistsError where it exists already."""
        columns: dict[str, Sequence[str]] = {"sample": self.samples, **self.ids, self.what: self.predictions}
        if self.probabilities is not None:
            columns["probability"] = [f"{value:.6g}" for value in self.probabilities.max(axis=1)]
            if len(self.classes) <= MOST_CLASSES:
                columns |= {
                    f"p({name})": [f"{value:.6g}" for value in column]
                    for name, column in zip(self.classes, self.probabilities.T, strict=True)
                }
        columns |= {name: [str(count) for count in values] for name, values in self.counts.items()}
        # A name that exists already is refused by the file system itself: nothing can come in between.
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_harmless(columns))
            writer.writerows(_harmless(row) for row in zip(*columns.values(), strict=True))


def _harmless(cells: Iterable[str]) -> list[str]:
    """Return cells that no spreadsheet takes for a formula: an apostrophe goes before what begins like one."""
    return [f"'{cell}" if cell[:1] in tuple("=+-@\t\r") and not _is_number(cell) else cell for cell in cells]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
