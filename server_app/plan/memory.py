"""Memory of this process: what it holds, its peak, and the growth while some work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class ProcessMemory:
    """Watches this process's resident memory, in bytes; None where the system does not tell (it is not Linux).

    Attributes
    ----------
    start
        What it held when the watch began.
    """

    def __init__(self) -> None:
        self.start = _resident("VmRSS")
        self._peak = 0

    @property
    def peak(self) -> int | None:
        """The most that it has held so far."""
        now = _resident("VmHWM")
        return None if now is None else max(now, self._peak)

    def growth(self, work: Callable[[], T]) -> tuple[T, int | None]:
        """Do some work; return its result, and by how much memory grew at most meanwhile."""
        before = _resident("VmRSS")
        self._peak = self.peak or 0
        if before is not None:
            # The mark of the peak starts anew; where it may not, the growth is of the whole process's peak.
            with contextlib.suppress(OSError):
                _RESET.write_text("5", encoding="ascii")
        result = work()
        after = _resident("VmHWM")
        return result, None if before is None or after is None else max(0, after - before)


def _resident(name: str) -> int | None:
    if not _STATUS.is_file():
        return None
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
