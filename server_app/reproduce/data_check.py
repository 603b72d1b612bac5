"""Check of the data that cells need: what lacks is told once, before the first cell is run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.build import build_task
from florets.server_app.reproduce.cells import Cell, folder_of
from florets.task.registry import reads_files, resolve


def check_folder(given: Mapping[str, str], caller: Path) -> None:
    """Raise ConfigError if `data_dir` was given and is no folder."""
    if "data_dir" in given and not (folder := folder_of(given, "data_dir", caller)).is_dir():
        raise ConfigError([f"data_dir={folder}: there is no such folder; name the one that holds the data's files."])


def with_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data can be had, and why others' cannot, each reason once.

    Files are read, once for each data set; data that are generated are not made for it.

    Raises
    ------
    ConfigError
        If there are cells, and none of them has its data.
    """
    reasons: dict[str, str] = {}
    ready = []
    for cell in cells:
        key = _source(cell.config)
        if key not in reasons:
            reasons[key] = _problem(cell.config)
        if not reasons[key]:
            ready.append(cell)
    told = list(dict.fromkeys(filter(None, reasons.values())))
    if told and not ready:
        raise ConfigError(told)
    return ready, told


def _source(config: Config) -> str:
    """Return what says which files are read, and how."""
    return json.dumps([config.task.data, config.task.data_options, config.data_dir], sort_keys=True, default=str)


def _problem(config: Config) -> str:
    try:
        resolve("data", config.task.data)
        if reads_files(config.task.data):
            _ = build_task(config).data
    except ValueError as error:  # ConfigError is one
        return str(error)
    return ""
