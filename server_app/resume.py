"""Going on with an interrupted run: what its folder says, and what may be different from then on."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from florets.conf.consent import TRUST, imported_functions, read_trust
from florets.conf.overrides import Given, dotted, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, resume_command, saved_config
from florets.conf.schema import WITHOUT_EFFECT, Config, as_plain, show
from florets.reports.folder import FINISHED, FolderLock
from florets.reports.summary import RunSummary
from florets.server_app.checkpoint import Checkpoint, CheckpointError, Checkpoints
from florets.server_app.own_code import (
    look_for_given,
)
from florets.server_app.recorder import read_summary
from florets.strategies.registry import strategy_class

log = logging.getLogger("florets")

CHANGEABLE = (
    *("num_rounds", "engine", "device", "data_dir"),
    *("min_clients", "quorum", "round_timeout"),
    *WITHOUT_EFFECT,
)
"""Keys that may change in the middle of a run: they say where, how long and how carefully, not what is computed."""


def read_resume(overrides: Sequence[str], caller: Path) -> tuple[Config, Path] | None:
    """Return the configuration and the folder of the run that `resume=<folder>` names; None without that key.

    Beside `resume` only the keys in `CHANGEABLE` may be typed, without `results_dir`: the run stays in its folder.
    Relative folders are meant from `caller`. `trust=true` lets functions be imported that the folder's configuration
    names.
    """
    if not any(text.startswith("resume=") for text in overrides):
        return None
    problems: list[str] = []
    given = {entry.key: entry for entry in read_overrides(overrides, problems)}
    if problems:
        raise ConfigError(problems)
    text, consent = given.pop("resume").value, given.pop(TRUST, None)
    trust = consent is not None and read_trust(consent.value, consent.text, problems)
    if text is None or str(text) == "":
        problems.append("resume= names no folder: give resume=<folder of an interrupted run>.")
    folder = absolute(str(text), caller)
    for entry in given.values():
        if entry.key not in CHANGEABLE or entry.key == "results_dir":
            allowed = ", ".join(key for key in CHANGEABLE if key != "results_dir")
            problems.append(f"{entry.text}: cannot be changed during a run; with resume you may give {allowed}.")
    if problems:
        raise ConfigError(problems)
    if "data_dir" in given:
        path = str(absolute(str(given["data_dir"].value), caller))
        given["data_dir"] = Given("data_dir", path, given["data_dir"].text)
    if trust:
        look_for_given(folder)
    config = saved_config(folder, list(given.values()), trust)
    return config, folder


def refuse_interrupted(folder: Path, config: Config, by_flower: bool = False) -> None:
    """Raise ConfigError where a folder's interrupted run could go on, or does: a new run would lose its rounds."""
    saved = Checkpoints(folder).newest()
    if saved is None or ((folder / FINISHED).is_file() and not _was_stopped(folder)):
        return
    try:
        FolderLock(folder).release()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    command = resume_command(folder, bool(imported_functions(config)), by_flower)
    raise ConfigError(
        f"{folder}: holds an interrupted run, saved after round {saved}. Go on with: {command}\n"
        "A sweep goes on with --continue, in Python keep=True. To start anew, remove that folder, or set another "
        "results_dir."
    )


def finished_summary(folder: Path, config: Config) -> RunSummary | None:
    """Return the summary of a run that has nothing left to do; None where it can go on.

    It can where it was stopped, or more rounds are asked for than it was made with; ConfigError where fewer are.
    """
    # The page is the last thing that a run writes.
    if not (folder / FINISHED).is_file() or _was_stopped(folder):
        return None
    asked, done = config.num_rounds, saved_config(folder, trust=True).num_rounds
    if asked < done:
        raise ConfigError(
            f"num_rounds={asked}: the run in {folder} has finished with num_rounds={done}, and rounds cannot be "
            f"undone; leave num_rounds out, or give more to go on."
        )
    if asked > done:
        return None
    try:
        return read_summary(folder)
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s is missing or damaged (%s): the run's end is done again", folder / "summary.json", error)
        return None


def _was_stopped(folder: Path) -> bool:
    try:
        return read_summary(folder).stopped
    except (OSError, ValueError, TypeError):
        return False


def find_checkpoint(folder: Path, config: Config) -> Checkpoint | None:
    """Return the checkpoint that a run goes on from; None where it was interrupted before its first one.

    CheckpointError where checkpoints are damaged, of another configuration, or were never to be written.
    """
    # Its state is made of the strategy's own classes: they are built only if they are loaded.
    checkpoint = Checkpoints(folder).load(strategy_class(config.strategy.name))
    if checkpoint is None:
        if saved_config(folder, trust=True).checkpoint_every == 0:
            raise CheckpointError(
                f"the run in {folder} was made with checkpoint_every=0: there is nothing to resume; run it again"
            )
        return None
    # Through JSON, as the checkpoint's went: a tuple and a list are equal then.
    then, now = dict(dotted(checkpoint.config)), dict(dotted(json.loads(json.dumps(as_plain(config)))))
    different = [
        f"{key} was {show(then.get(key))} and is {show(now.get(key))}"
        for key in sorted(then.keys() | now.keys())
        if key not in CHANGEABLE and then.get(key) != now.get(key)
    ]
    if different:
        raise CheckpointError(
            f"the checkpoint in {folder} is of another configuration than its config.yaml: {'; '.join(different)}. "
            f"Restore config.yaml, or run the experiment again"
        )
    return checkpoint
