"""Records of a table that equal an earlier one."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from florets.task.data.tables.description import ColumnSummary

if TYPE_CHECKING:
    import pandas as pd

_NEAR = 0.01
"""Largest difference, in standard deviations, between two nearly equal values."""


def copies(frame: "pd.DataFrame", targets: list[str], summaries: Mapping[str, ColumnSummary]) -> tuple[int, int]:
    """Return how many records equal an earlier one in all columns and the target, and how many do so nearly."""
    import pandas as pd

    numbers = frame.select_dtypes(include=["number"])
    words = frame[frame.columns.difference(numbers.columns)]
    codes = [pd.factorize(words[name])[0] for name in words.columns]
    texts = np.stack(codes, axis=1) if codes else np.empty((len(frame), 0), dtype=np.int64)
    values = numbers.to_numpy(dtype=np.float64)
    known = [summaries[name] for name in numbers.columns]
    steps = np.array([_NEAR * math.sqrt(one.m2 / one.known) if one.m2 > 0 else 1.0 for one in known])
    with np.errstate(over="ignore"):
        rounded = np.where(np.array([one.m2 > 0 for one in known]), np.round(values / steps), values)
    counts = []
    for rows in (values, rounded):
        # Zero has two signs.
        keys = [row.tobytes() + text.tobytes() for row, text in zip(rows + 0.0, texts, strict=True)]
        counts.append(len(frame) - len(set(zip(keys, targets, strict=True))))
    return counts[0], max(counts)
