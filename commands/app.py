"""`florets app`: a Flower app of a few lines whose code is the installed package."""

import os
from collections.abc import Sequence
from pathlib import Path

from florets.commands.new import write
from florets.conf.problems import ConfigError
from florets.reports.console import say

HELP = """florets app: a Flower app whose code is the installed package.

Usage
  florets app <folder>

The new folder is for `flwr run`: on Flower's simulation, and on a federation
that is already running, whose server and nodes have florets installed. Data
functions and strategies of your own go into it and are sent along."""


def main(arguments: Sequence[str]) -> int:
    """Write the app into a new folder."""
    if not arguments:
        print(HELP)
        return 0
    if len(arguments) != 1:
        raise ConfigError(f"florets app {' '.join(arguments)}: give one folder.")
    folder = Path(os.path.abspath(arguments[0]))  # not resolved: a link is no new folder
    write("florets app", "app", folder.name.replace("-", "_"), folder)
    say(f"{folder}: an app for `flwr run`; its README.md says how.")
    return 0
