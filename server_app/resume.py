"""Going on with an interrupted run: what its folder says, and what may be different from then on."""

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conf.layers import nest, overlay
from conf.overrides import Given, read_overrides
from conf.problems import ConfigError
from conf.schema import Config
from conf.typed import read_config, show
from conf.validate import validate
from server_app.checkpoint import Checkpoint, CheckpointError, Checkpoints
from server_app.folder import FINISHED
from server_app.jobs import absolute
from server_app.recorder import read_summary
from server_app.summary import RunSummary

log = logging.getLogger("florets")

CHANGEABLE = (
    *("num_rounds", "quiet", "engine", "device", "data_dir", "results_dir"),
    *("min_clients", "quorum", "start_timeout", "round_timeout", "grace", "round_tries"),
    *("checkpoint_every", "checkpoint_keep"),
)
"""Keys that may change in the middle of a run: they say where, how long and how carefully, not what is computed."""


def read_resume(overrides: Sequence[str], caller: Path) -> tuple[Config, Path] | None:
    """Return the configuration and the folder of the run that `resume=<folder>` names; None without that key.

    Parameters
    ----------
    overrides : sequence of str
        What was typed. Beside `resume` only the keys in `CHANGEABLE` may be given, without `results_dir`: the run
        stays in its folder.
    caller : Path
        The working directory that relative folders are meant from.

    Raises
    ------
    ConfigError
        If the folder holds no run, or another key is given.
    """
    if not any(text.startswith("resume=") for text in overrides):
        return None
    problems: list[str] = []
    given = {entry.key: entry for entry in read_overrides(overrides, problems)}
    if problems:
        raise ConfigError(problems)
    folder = absolute(str(given.pop("resume").value), caller)
    for entry in given.values():
        if entry.key not in CHANGEABLE or entry.key == "results_dir":
            allowed = ", ".join(key for key in CHANGEABLE if key != "results_dir")
            problems.append(f"{entry.text}: cannot be changed in the middle of a run; beside resume go {allowed}.")
    if problems:
        raise ConfigError(problems)
    if "data_dir" in given:
        path = str(absolute(str(given["data_dir"].value), caller))
        given["data_dir"] = Given("data_dir", path, given["data_dir"].text)
    return read_folder(folder, list(given.values())), folder


def read_folder(folder: Path, given: Sequence[Given] = ()) -> Config:
    """Return the configuration of the run in a folder, with some keys changed.

    Raises
    ------
    ConfigError
        If there is no run, or its `config.yaml` is not one of this release.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        raise ConfigError([f"resume={folder}: there is no run in this folder (no config.yaml); name a run's folder."])
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError([f"{path}: cannot be read ({reason}); run the experiment again."]) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: holds no configuration; run the experiment again."])
    overlay(values, nest(given))
    problems: list[str] = []
    config = read_config(values, problems)
    if config is None:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    return validate(config)


def finished_summary(folder: Path, config: Config) -> RunSummary | None:
    """Return the summary of a run that has nothing left to do; None where it can go on.

    A run that has come to its end can still go on where more rounds are asked for.
    """
    # The page is the last thing that a run writes.
    if not (folder / FINISHED).is_file():
        return None
    before = read_folder(folder)
    return None if config.num_rounds > before.num_rounds else read_summary(folder)


def find_checkpoint(folder: Path, config: Config) -> Checkpoint | None:
    """Return the checkpoint that a run goes on from; None where it was interrupted before its first one.

    Raises
    ------
    CheckpointError
        If checkpoints are there but damaged, are another configuration's, or were never to be written.
    """
    checkpoint = Checkpoints(folder, config.checkpoint_keep).load()
    if checkpoint is None:
        if read_folder(folder).checkpoint_every == 0:
            raise CheckpointError(
                f"the run in {folder} was made with checkpoint_every=0: there is nothing to go on from; run it again"
            )
        return None
    different = list(_differences(checkpoint.config, dataclasses.asdict(config)))
    if different:
        raise CheckpointError(
            f"the checkpoint in {folder} is of another configuration than its config.yaml: "
            f"{'; '.join(different)}. Put config.yaml back as it was, or run the experiment again"
        )
    return checkpoint


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    # Through JSON, as the checkpoint's went: a tuple and a list are equal then.
    now = json.loads(json.dumps(now))
    for name in sorted(then.keys() | now.keys()):
        old, new, key = then.get(name), now.get(name), f"{prefix}{name}"
        if key in CHANGEABLE or old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{key}.")
        else:
            yield f"{key} was {show(old)} and is {show(new)}"
