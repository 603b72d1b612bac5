"""`SharedFile`: memory that one process writes and several read; it has no name, and goes with the last of them."""

import mmap
import os
import tempfile
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

_ALIGNED = 64
"""Bytes: where torch would put a tensor itself."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a shared file, in bytes."""

    start: int
    size: int


class SharedFile:
    """A file in memory without a name, so that nothing is left of it however its processes end.

    Handed to a process that is being started it is the same file there. Who has made it writes, the others read.

    Parameters
    ----------
    descriptor
        Of the file; None: a new one.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _new_file() if descriptor is None else descriptor
        self._end = 0

    def append(self, data: bytes | memoryview) -> Place:
        """Write behind all that was written, and return where."""
        start = -(-self._end // _ALIGNED) * _ALIGNED
        self._end = start + len(data)
        written, view = 0, memoryview(data)
        # The system writes 2 GiB at most in one call.
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], start + written)
        return Place(start, len(data))

    @property
    def end(self) -> int:
        """Where the next thing is written, before it is aligned."""
        return self._end

    def shorten(self, end: int) -> None:
        """Forget, and give back to the system, all from `end` on."""
        self._end = end
        os.ftruncate(self._descriptor, end)

    def read(self, place: Place) -> bytes:
        """Return a copy of what stands at a place."""
        parts, start, left = [], place.start, place.size
        while left:
            parts.append(os.pread(self._descriptor, left, start))
            if not parts[-1]:
                raise ValueError(f"the shared file ends before {place}")
            start, left = start + len(parts[-1]), left - len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def mapped(self, end: int) -> mmap.mmap:
        """Return all up to `end` as memory of this process: shared as long as it does not write there."""
        return mmap.mmap(self._descriptor, end, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Close it in this process; what is mapped stays."""
        os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        # As multiprocessing hands over its own pipes.
        return _received, (reduction.DupFd(self._descriptor),)


def _received(handle: Any) -> SharedFile:
    return SharedFile(handle.detach())


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("florets")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
