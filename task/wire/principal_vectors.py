"""Read the reply to `query.principal_vectors`: directions of a client's inputs, and the place of each."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, MalformedMessage, Vector, read_array

_TOLERANCE = 1e-3
"""Of a vector's length: what float32 leaves of 1, and more."""


def read_principal_vectors(content: RecordDict, length: int, most: int) -> tuple[Vector, npt.NDArray[np.int64]]:
    """Return 1 to `most` vectors (length, m) and their places (m,), rising, from 0 to `most` - 1.

    Raises
    ------
    MalformedMessage
        If records, keys, shapes or dtypes are wrong, places do not rise or are too large, or a vector's length is
        not 1.
    """
    arrays, metrics = content.get(kinds.ARRAYS), content.get(kinds.METRICS)
    if (
        len(content.keys() - {kinds.WORK}) != 2
        or not isinstance(arrays, ArrayRecord)
        or not isinstance(metrics, MetricRecord)
    ):
        raise MalformedMessage(f"the reply holds {sorted(content)}, not {kinds.ARRAYS!r} and {kinds.METRICS!r}")
    if list(arrays) != [kinds.PRINCIPAL] or list(metrics) != [kinds.PLACES]:
        raise MalformedMessage(f"the reply holds {sorted(arrays)} and {sorted(metrics)}, not vectors and places")
    places = metrics[kinds.PLACES]
    if not isinstance(places, list) or not 1 <= len(places) <= most:
        found = len(places) if isinstance(places, list) else "no list of"
        raise MalformedMessage(f"{found} places came, not 1 to {most}")
    if not all(isinstance(place, int) and 0 <= place < most for place in places):
        raise MalformedMessage(f"places {places!r} are not integers from 0 to {most - 1}")
    if any(later <= place for place, later in pairwise(places)):
        raise MalformedMessage(f"places {places!r} do not rise")
    entry = Entry(kinds.PRINCIPAL, (length, len(places)), "float32", 0)
    vectors = read_array(arrays[kinds.PRINCIPAL], entry).astype(np.float64)
    # NaN fails the comparison as well; a huge value becomes infinite first.
    if not (np.abs(np.linalg.norm(vectors, axis=0) - 1.0) <= _TOLERANCE).all():
        raise MalformedMessage("a principal vector has another length than 1, or holds NaN")
    return vectors, np.array(places, dtype=np.int64)
