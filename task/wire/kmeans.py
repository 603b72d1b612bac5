"""Read the reply to `query.kmeans`: a client's local centres and their sizes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, MalformedMessage, Vector, read_array
from florets.task.wire.replies import MAX_EXAMPLES

MAX_COORDINATE = 1e15
"""Guards squared distances against implausible claims: beyond it they lose all figures, later they overflow."""


@dataclass(frozen=True)
class LocalCentres:
    """Centres (k', D) of a client's own data, and how many of its samples belong to each (k',)."""

    centres: Vector
    sizes: npt.NDArray[np.int64]


def read_centres(content: RecordDict, num_features: int, most: int) -> LocalCentres:
    """Read 1 to `most` centres of length `num_features`.

    Raises
    ------
    MalformedMessage
        If records, keys, shapes or dtypes are wrong, a coordinate is not finite or implausible, or a size is not a
        positive integer.
    """
    arrays, metrics = content.get(kinds.ARRAYS), content.get(kinds.METRICS)
    if (
        len(content.keys() - {kinds.WORK}) != 2
        or not isinstance(arrays, ArrayRecord)
        or not isinstance(metrics, MetricRecord)
    ):
        raise MalformedMessage(f"the reply holds {sorted(content)}, not {kinds.ARRAYS!r} and {kinds.METRICS!r}")
    if list(arrays) != [kinds.CENTRES] or list(metrics) != [kinds.SIZES]:
        raise MalformedMessage(f"the reply holds {sorted(arrays)} and {sorted(metrics)}, not centres and sizes")
    sizes = metrics[kinds.SIZES]
    if not isinstance(sizes, list) or not 1 <= len(sizes) <= most:
        found = len(sizes) if isinstance(sizes, list) else "no list of"
        raise MalformedMessage(f"{found} sizes came, not 1 to {most}")
    if not all(isinstance(size, int) and size >= 1 for size in sizes) or sum(sizes) > MAX_EXAMPLES:
        raise MalformedMessage(f"sizes {sizes!r} are not integers from 1, together at most {MAX_EXAMPLES}")
    entry = Entry(kinds.CENTRES, (len(sizes), num_features), "float32", 0)
    centres = read_array(arrays[kinds.CENTRES], entry).astype(np.float64)
    # NaN fails the comparison as well.
    if not (np.abs(centres) <= MAX_COORDINATE).all():
        raise MalformedMessage(f"a centre holds NaN or a coordinate beyond {MAX_COORDINATE:g}")
    return LocalCentres(centres, np.array(sizes, dtype=np.int64))
