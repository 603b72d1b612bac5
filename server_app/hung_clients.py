"""Simulated clients that still hang when their run is over: Flower 1.41 would wait for them for ever."""

import contextlib
import logging
import sys
import threading
import time

log = logging.getLogger("florets")

_GRACE_SECONDS = 10.0
_AT_WORK = "ray::ClientAppActor.run"
"""Title of a process of Ray's while it works for a client; between two messages it ends with the class."""


def end_hung_clients() -> None:
    """End the client processes of Flower's simulation that do not come to their end; called at that of the run.

    Nobody waits for their replies any more but Flower itself, whose simulation does not end before them. Elsewhere
    this does nothing: a SuperNode's clients are its own affair. Only processes of this machine are found.
    """
    if "ray" in sys.modules:
        # A daemon: it is gone with the simulation's process, as a rule long before it has looked once.
        threading.Thread(target=_watch, name="hung-clients", daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(_GRACE_SECONDS)
        _end_those_at_work()


def _end_those_at_work() -> None:
    # The extra for simulations brings it along.
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(_AT_WORK):
                log.warning("a client still hangs at the end of the run: its process %d is ended", process.pid)
                process.kill()
