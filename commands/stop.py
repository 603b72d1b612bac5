"""The command `florets stop`: asks a run to end after its present round, with its results written."""

import os
from collections.abc import Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.reports.console import say
from florets.reports.folder import STOP, is_held, naming
from florets.reports.run_state import runs_below

HELP = """florets stop <folder>
  The run in the folder, a run's own or one of results with a single run in progress, ends after its present round,
  with checkpoint, models, tables and report; florets resume=<folder> goes on. To end a run at once, interrupt it
  (ctrl-C, SIGTERM, `flwr stop`): it keeps the checkpoint of its last whole round."""


def main(arguments: Sequence[str]) -> int:
    """Ask the run to end, and return the exit code."""
    if len(arguments) != 1:
        raise ConfigError(f"florets stop: needs one folder, and was given {', '.join(arguments) or 'none'}.")
    folder = absolute(arguments[0], Path.cwd())
    going_on = [run for run in runs_below(folder) if is_held(run)]
    if len(going_on) != 1:
        others = (
            f"several runs are in progress ({', '.join(map(str, going_on))})" if going_on else "no run is in progress"
        )
        raise ConfigError(f"{folder}: {others}; florets status <folder> shows its runs.")
    (run,) = going_on
    with naming(run / STOP):
        # Neither a file that is there nor where a link leads is written to.
        os.close(os.open(run / STOP, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
    say(f"The run ends after its present round: {run}")
    return 0
