"""`florets check`: list the problems of sites' data before anything is trained."""

from collections.abc import Sequence

from florets.api.check import check_overrides
from florets.commands.given_keys import key_texts
from florets.reports.console import say

HELP = """florets check data_dir=<folder> [target=<column>] [<key>=<value> ...]
  Examine sites' data before anything is trained: a folder (or a table) for each site in data_dir, or the data of one
  site before it joins. One line per finding, with its remedy; exit code 1 if a site could not take part.

    florets check data_dir=sites target=disease
    florets check data_dir=pupils.csv target=math owner=school

Page: <results_dir>/check/<name of data_dir>/check.html, with check.json and description.json."""


def main(arguments: Sequence[str]) -> int:
    """Check the data that a command line names, and return the exit code: 1 where a site could not take part."""
    found = check_overrides(key_texts("check", arguments))
    say(found.text)
    return 0 if found.is_usable else 1
