"""The command `florets stop`: asks a run to end after its current round, with its results written."""

import os
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.reports.console import say
from florets.reports.folder import STOP, is_held, naming
from florets.reports.run_state import runs_below


def stop(folder: str, /) -> None:
    """Let a run end after its current round, with checkpoint, models, tables and report.

    ``florets resume=<folder>`` goes on. To end a run at once, interrupt it (ctrl-C, SIGTERM, `flwr stop`): it keeps
    the checkpoint of its last whole round.

    Parameters
    ----------
    folder : str
        The run's own, or one of results with a single run in progress.
    """
    place = absolute(folder, Path.cwd())
    going_on = [run for run in runs_below(place) if is_held(run)]
    if len(going_on) != 1:
        others = (
            f"several runs are in progress ({', '.join(map(str, going_on))})" if going_on else "no run is in progress"
        )
        raise ConfigError(f"{place}: {others}; florets status <folder> shows its runs.")
    (run,) = going_on
    with naming(run / STOP):
        # Neither a file that is there nor where a link leads is written to.
        os.close(os.open(run / STOP, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
    say(f"The run ends after its current round: {run}")
