"""The configuration that a run left in its folder."""

import copy
from collections.abc import Sequence
from pathlib import Path

import yaml

from florets.conf.aliases import modernise, renamed
from florets.conf.layers import nest, overlay
from florets.conf.overrides import Given
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.validate import checked_config
from florets.strategies.registry import UnknownStrategy, find_strategy


def saved_config(folder: Path, given: Sequence[Given] = (), trust: bool = False) -> Config:
    """Return the configuration of a run's ``config.yaml``, with some keys changed, checked anew.

    Parameters
    ----------
    folder
        The run's own folder.
    given
        Keys with other values.
    trust
        Whether a strategy that the file names by an import path may be imported.

    Raises
    ------
    ConfigError
        If there is no run, the file cannot be read, it is no configuration of this release, or its strategy is not
        trusted.
    """
    path = folder / "config.yaml"
    if not folder.is_dir():
        raise ConfigError([f"{folder}: there is no such folder; name a run's folder."])
    if not path.is_file():
        raise ConfigError([f"{folder}: there is no run in this folder (no config.yaml); name a run's folder."])
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    # PyYAML raises a ValueError for a day that no month has, and nested too deeply a file ends the stack.
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError([f"{path} cannot be read ({reason}); run the experiment again."]) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: holds no configuration; run the experiment again."])
    if not isinstance(values.get("strategy", {}), dict):
        values["strategy"] = {"name": values["strategy"]}
    if strategy := values.get("strategy"):
        modernise(values, strategy)
        _require_trust(folder, str(strategy.get("name")), trust)
    saved = copy.deepcopy(values)
    overlay(values, nest([renamed(entry) for entry in given]))
    config, problems = checked_config(values)
    if config is None or problems:
        # Only what the file has wrong by itself is the file's fault.
        own = checked_config(saved)[1]
        raise ConfigError([f"{path}: {problem}" if problem in own else problem for problem in problems])
    return config


def _require_trust(folder: Path, name: str, trust: bool) -> None:
    """Refuse a strategy by an import path before it is imported."""
    if ":" not in name or trust:
        return
    try:
        trusted = find_strategy(name).trusted
    except UnknownStrategy:
        # What it is instead is said where the configuration is read.
        return
    if not trusted:
        raise ConfigError(
            [
                f"{folder}: the run in this folder imports a strategy of its author's, strategy={name}; add "
                "trust=true if you know it (in flwr run: overrides='trust=true')."
            ]
        )


def imported_functions(config: Config) -> list[str]:
    """Return the keys, with their values, that name code by an import path: a run of this configuration runs it."""
    task = config.task
    named = {"task.data": task.data, "task.partition": task.partition, "task.model": task.model}
    found = [f"{key}={value}" for key, value in named.items() if ":" in value]
    strategy = find_strategy(config.strategy.name)
    return found if strategy.trusted else [*found, f"strategy={strategy.path}"]
