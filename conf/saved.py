"""The configuration that a finished run left in its folder."""

from pathlib import Path

import yaml

from conf.problems import ConfigError
from conf.schema import Config
from conf.typed import read_config
from conf.validate import find_problems


def saved_config(path: Path) -> Config:
    """Return the configuration of a run's ``config.yaml``, checked anew.

    Raises
    ------
    ConfigError
        If the file cannot be read, or is no configuration of this version.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            [f"{path} cannot be read ({error}); run must name the folder of a finished run."]
        ) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: is no configuration of a run."])
    problems: list[str] = []
    config = read_config(values, problems)
    if config is not None:
        problems += find_problems(config)
    if config is None or problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    return config
