"""A line a minute while a run waits for its clients, so that slow nodes are not taken for a run that hangs."""

import logging
import time
from collections.abc import Callable, Sequence

log = logging.getLogger("florets")

_SECONDS = 60.0
_MOST_NAMED = 10


class Waiting:
    """One wait, from now on, and when it was last reported."""

    def __init__(self) -> None:
        self._begun = self._reported = time.monotonic()

    def report(self, deadline: float, what: Callable[[], str]) -> None:
        """Log what is waited for, how long already and until when, where a minute has passed since the last line.

        Parameters
        ----------
        deadline
            When the wait ends, on the clock of `time.monotonic`.
        what
            Returns the words; called only where they are logged.
        """
        now = time.monotonic()
        if now - self._reported >= _SECONDS:
            self._reported = now
            so_far, left = now - self._begun, max(0.0, deadline - now)
            log.info("waiting for %s (%.0f s so far, at most %.0f s more)", what(), so_far, left)


def named(names: Sequence[str]) -> str:
    """Return names in one line, of many the first ones and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
