"""Jobs of a table or sweep that is called again: finished runs are kept, stopped ones go on, others begin."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from florets.conf.overrides import dotted
from florets.conf.problems import ConfigError
from florets.conf.saved import default_values
from florets.conf.schema import Config, as_plain
from florets.reports.folder import FINISHED, MARKER, FolderLock
from florets.reports.summary import RunSummary
from florets.server_app.checkpoint import CheckpointError, Checkpoints
from florets.server_app.own_code import Hashes, changed_files, changed_words, code_on_disk, recorded_code
from florets.server_app.own_data import ASKED
from florets.server_app.recorder import read_summary
from florets.server_app.resume import CHANGEABLE
from florets.studies.one_run import Runner
from florets.task.registry import reads_files

log = logging.getLogger("florets")

_FOLDER = "data_dir"

_ELSEWHERE = {"seed", *CHANGEABLE} - {"num_rounds", _FOLDER}
"""Keys that do not change what a run computes, or are compared by its folder's name."""

_CHOSEN = "batch_clients"
"""Key of which a run saves what it has chosen, not what was asked for."""


@dataclass(frozen=True)
class Engine:
    """What runs an experiment, and goes on with an interrupted one; functions that other processes can import."""

    run: Runner
    resume: Callable[[Config, Path], RunSummary]


def plain(config: Config) -> dict[str, Any]:
    """Return a configuration as a record holds it: without the data's folder where no data are read from it."""
    values: dict[str, Any] = json.loads(json.dumps(as_plain(config)))
    if reads_files(config.task.data) is False:
        del values[_FOLDER]
    return values


def finished_run(folder: Path, wanted: Mapping[str, Any], code: Hashes) -> RunSummary | None:
    """Return the summary of a finished run, None where it was stopped, is damaged, or of other settings or code.

    `wanted` is the configuration that is asked for (`plain`), `code` its author's code as it is now (`code_on_disk`).
    """
    if not (folder / FINISHED).is_file() or not (folder / MARKER).is_file():
        return None
    if changed_files(recorded_code(folder), code):
        return None
    try:
        summary = read_summary(folder)
        return summary if same_settings(_saved(folder), wanted) and not summary.stopped else None
    except (OSError, ValueError, TypeError):
        return None


def _saved(folder: Path) -> Any:
    """Return the configuration that a run was asked for, None where it cannot be read.

    That of a run on nodes' own data was completed from these; what was asked for has a file of its own.
    """
    try:
        if (folder / ASKED).is_file():
            return json.loads((folder / ASKED).read_text(encoding="utf-8"))
        return yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def go_on(config: Config, overrides: Sequence[str], folder: Path, engine: Engine) -> RunSummary:
    """Run an experiment, from its last checkpoint where there is one."""
    saved = _saved(folder) if (folder / MARKER).is_file() else None
    if files := changed_files(recorded_code(folder), code_on_disk(config)):
        log.warning("%s: the code of this run has changed (%s): it starts anew", folder, changed_words(files))
        # A new run would be refused as long as there is something to go on from.
        with FolderLock(folder):
            shutil.rmtree(Checkpoints(folder).folder, ignore_errors=True)
    elif config.checkpoint_every and isinstance(saved, Mapping) and same_settings(saved, plain(config)):
        try:
            return engine.resume(replace(config, **{_CHOSEN: saved.get(_CHOSEN, config.batch_clients)}), folder)
        except CheckpointError as error:
            # Damaged, or of a version that wrote other settings: nothing can go on from it, and a new run would be
            # refused as long as it is there.
            log.warning("%s: the run begins anew", error)
            shutil.rmtree(Checkpoints(folder).folder)
        except ConfigError:
            pass  # A new run says by itself what is wrong.
    return engine.run(config, overrides)


def same_settings(then: Any, now: Mapping[str, Any]) -> bool:
    """Return whether a run's configuration is the one that is asked for, as far as it changes results.

    A key that came after the run was made had its default then; without any key there is no configuration.
    """
    if not isinstance(then, Mapping) or (now and not then):
        return False
    before, after, defaults = dict(dotted(then)), dict(dotted(now)), default_values(now)
    for key in {*before, *after} - _ELSEWHERE:
        if key == _FOLDER and not (key in before and key in after):
            continue
        old, new = before.get(key, defaults.get(key)), after.get(key)
        # A run saves the number that `auto` came to, and `off` where it is one client at a time.
        if key == _CHOSEN and (new == "auto" or (old, new) == ("off", 1)):
            continue
        if old != new:
            return False
    return True
