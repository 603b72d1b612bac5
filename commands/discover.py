"""`florets discover`: say whether clients form groups, how many, and which."""

from collections.abc import Sequence

from florets.api.discover import discover_overrides
from florets.conf.problems import ConfigError
from florets.server_app.console import say

HELP = """florets discover [<key>=<value> ...]
  Do these clients form groups, how many, and which? Runs strategy=discovery until it has decided, and no longer.
  Keys are those of an experiment, without a strategy; k=3 asks for three groups in place of testing how many.

    florets discover                                         the quickstart's clients
    florets discover data_dir=DIR                            a folder (data.npz, ...) or a table for each client
    florets discover data_dir=pupils.csv target=math owner=school

Results: <results_dir>/<experiment>/discover/<other keys>/seed-<seed>/, a run's folder; clients.csv has the groups."""


def main(arguments: Sequence[str]) -> int:
    """Look for groups among the clients that a command line names, and return the exit code."""
    options = [text for text in arguments if text.startswith("-")]
    if {"-h", "--help"} & set(options):
        print(HELP)
        return 0
    if unknown := [text for text in options if text not in ("--debug", "-q", "--quiet")]:
        raise ConfigError([f"{text}: florets discover has no such option (-h, -q, --debug)." for text in unknown])
    overrides = [text for text in arguments if not text.startswith("-")]
    found = discover_overrides([*overrides, *(["quiet=true"] if {"-q", "--quiet"} & set(options) else [])])
    say(found.text)
    say(f"Results: {found.run.folder}")
    return 0
