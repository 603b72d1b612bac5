"""The configuration that a run left in its folder."""

import copy
from collections.abc import Collection, Sequence
from pathlib import Path

import yaml

from florets.conf.consent import import_paths, require_trust
from florets.conf.layers import nest, overlay
from florets.conf.overrides import Given
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.validate import checked_config


def saved_config(
    folder: Path, given: Sequence[Given] = (), trust: bool = False, unused: Collection[str] = ()
) -> Config:
    """Return the configuration of a run's ``config.yaml``, with some keys changed, checked anew.

    Parameters
    ----------
    folder
        The run's own folder.
    given
        Keys with other values.
    trust
        Whether code that the file names by import paths may be imported and called.
    unused
        Keys of such paths that the caller makes no use of.

    Raises
    ------
    ConfigError
        If there is no run, the file cannot be read, it is no configuration of this release, or it names code that is
        not trusted.
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
    if not trust:
        named = import_paths(values)
        require_trust(f"{folder}: the run", {key: path for key, path in named.items() if key not in unused})
    saved = copy.deepcopy(values)
    overlay(values, nest(given))
    config, problems = checked_config(values)
    if config is None or problems:
        # Only what the file has wrong by itself is the file's fault.
        own = checked_config(saved)[1]
        raise ConfigError([f"{path}: {problem}" if problem in own else problem for problem in problems])
    return config
