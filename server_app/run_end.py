"""The end of a run where Flower 1.41 would come to none: its SuperLink has gone, or a simulated client hangs."""

import contextlib
import logging
import os
import sys
import threading
import time
from pathlib import Path

log = logging.getLogger("florets")

_LOOK_SECONDS = 1.0
_TASKS = ("flwr-simulation", "flwr-serverapp")
"""Processes that Flower starts for one run."""
_GRACE_SECONDS = 10.0
_AT_WORK = "ray::ClientAppActor.run"
"""Title of a process of Ray's while it works for a client; between two messages it ends with the class."""


def end_with_flower() -> None:
    """End this process as soon as the one that Flower started it from has gone; called at the run's start.

    Flower tells it so by a signal, which a ServerApp in a thread of the simulation's never sees: it would go on alone
    and hold the run's folder. Ended at any moment, the run can go on from there.
    """
    if Path(sys.argv[0]).stem in _TASKS:
        threading.Thread(target=_follow, args=(_parent(),), name="parent", daemon=True).start()


def _parent() -> int:
    # Flower names it; asking the system would miss one that went while this process was importing.
    named = sys.argv.index("--parent-pid") + 1 if "--parent-pid" in sys.argv else len(sys.argv)
    return int(sys.argv[named]) if named < len(sys.argv) else os.getppid()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def end_hung_clients() -> None:
    """End the client processes of Flower's simulation that do not come to their end; called at that of the run.

    Nobody waits for their replies any more but Flower itself, whose simulation does not end before them. Elsewhere
    this does nothing: a SuperNode's clients are its own affair. Only processes of this machine are found.
    """
    if "ray" in sys.modules:
        # A daemon: it is gone with the simulation's process, as a rule long before it has looked once.
        threading.Thread(target=_end_clients, name="hung-clients", daemon=True).start()


def _end_clients() -> None:
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
