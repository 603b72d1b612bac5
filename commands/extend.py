"""`florets extend`: go on from a finished run with other data, in a new folder."""

from collections.abc import Sequence

from florets.commands.given_keys import key_texts
from florets.conf.consent import imported_functions
from florets.conf.saved import resume_command
from florets.reports.console import say
from florets.studies import one_run

HELP = """florets extend run=<folder> data_dir=<folder> [num_rounds=<n>] [to=<new folder>] [prepare=true] [<key>=..]
  Continue a finished run with its sites' new data, and with new sites, in a new folder; the earlier results are
  kept. The run starts from the earlier models, groups and strategy state. Tables become inputs as before; a
  category that no site had then counts as unknown. A new site is placed as a newcomer in the next round. Sites with
  the same names are the same clients; one that is missing keeps its group and sits out.

num_rounds= is the number of further rounds (by default as many as before); their numbers continue. to= names the new
folder, by default <name>-extended next to the earlier one; parent.json in it names the earlier run.
prepare=true only writes the folder and prints the commands that start the run: for real nodes, which have no
data_dir. trust=true permits importing functions that the run names by import paths.
Keys that resume may change can be given as well: workers, device, min_clients, round_timeout and others."""

_PREPARE = "prepare=true"


def main(arguments: Sequence[str]) -> int:
    """Extend a run and return the exit code."""
    from florets.api.extend import extend_overrides, prepare_extension

    given = key_texts("extend", arguments)
    if _PREPARE in given:
        config, folder = prepare_extension([text for text in given if text != _PREPARE], on_nodes=True)
        trust = bool(imported_functions(config))
        say(f"Prepared: {folder}")
        say(f"On nodes: {resume_command(folder, trust, by_flower=True)}")
        say(f"In this process: {resume_command(folder, trust)}")
        return 0
    summary = extend_overrides(given)
    say(f"{summary.experiment}, {summary.strategy}, seed {summary.seed}: {one_run.headline(summary)}")
    say(f"Results: {summary.folder}")
    return 0
