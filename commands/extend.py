"""`florets extend`: go on from a finished run with other data, in a new folder."""

from collections.abc import Sequence
from pathlib import Path

from florets.conf.consent import imported_functions
from florets.conf.run_folder import flower_resume_command, resume_command
from florets.server_app import jobs
from florets.server_app.console import say
from florets.server_app.given_keys import key_texts

HELP = """florets extend run=<folder> data_dir=<folder> [num_rounds=<n>] [to=<new folder>] [prepare=true] [<key>=..]
  Go on from a finished run with its sites' new data, and with new sites, in a folder of its own; the earlier results
  stay as they are. Models, groups and all that the strategy remembers are the earlier run's; how tables become inputs
  stays fixed, and a word that no site had then counts as unknown. A new site is placed as a newcomer in the next
  round. Sites with the same names are the same clients; one that is missing keeps its group and sits out.

num_rounds= are further rounds (as many as before), which continue counting. to= names the new folder; without it, it
lies next to the earlier one as <name>-extended, and parent.json in it names the earlier run.
prepare=true writes the folder alone and prints the commands that start it: for sites that are real nodes, whose data
no data_dir has. trust=true lets functions be imported that the run names by import paths.
Beside these go the keys that resume may change: workers, device, min_clients, round_timeout and the like."""

_PREPARE = "prepare=true"


def main(arguments: Sequence[str]) -> int:
    """Extend a run and return the exit code.

    Raises
    ------
    ConfigError
        If a key is wrong, or the run cannot be extended.
    """
    from florets.api.extend import extend_overrides, prepare_extension

    given = key_texts("extend", arguments)
    if _PREPARE in given:
        config, folder = prepare_extension([text for text in given if text != _PREPARE], Path.cwd(), on_nodes=True)
        trust = bool(imported_functions(config))
        say(f"Prepared: {folder}")
        say(f"On nodes: {flower_resume_command(folder, trust)}")
        say(f"In this process: {resume_command(folder, trust)}")
        return 0
    summary = extend_overrides(given, Path.cwd())
    say(f"{summary.experiment}, {summary.strategy}, seed {summary.seed}: {jobs.headline(summary)}")
    say(f"Results: {summary.folder}")
    return 0
