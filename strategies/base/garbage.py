"""Python's search for unreachable objects, less often while a run goes on."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 20_000
"""After so many new ones the young objects are looked through: 700 are those of a few dozen messages."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Leave alone, within the block, what there is by now, and look through new objects more seldom.

    An exchange with many clients makes tens of thousands of records, which are freed without any search: the search
    found nothing in them, and took up to a quarter of a round of small models.
    """
    before = gc.get_threshold()
    gc.freeze()
    # 0 is never.
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
