"""`florets discover`: say whether clients form groups, how many, and which."""

from collections.abc import Sequence

from florets.api.discover import discover_overrides
from florets.commands.given_keys import key_texts
from florets.reports.console import say

HELP = """florets discover [<key>=<value> ...]
  Do these clients form groups, how many, and which? Runs strategy=discovery until it has decided.
  Keys are those of an experiment, without a strategy; k=3 asks for three groups instead of testing how many.

    florets discover                                         the quickstart's clients
    florets discover data_dir=DIR                            a folder (data.npz, ...) or a table for each client
    florets discover data_dir=pupils.csv target=math owner=school

Results: <results_dir>/<experiment>/discover/<other keys>/seed-<seed>/, a run's folder; clients.csv has the groups."""


def main(arguments: Sequence[str]) -> int:
    """Look for groups among the clients that a command line names, and return the exit code."""
    found = discover_overrides(key_texts("discover", arguments))
    say(found.text)
    say(f"Results: {found.run.folder}")
    return 0
