"""Which cells lack their data: told before the first cell is run, and not by each of them in turn."""

import json
from collections.abc import Sequence

from florets.conf.schema import Config
from florets.server_app.build import build_task
from florets.server_app.reproduce.cells import Cell
from florets.task.registry import reads_files, resolve


def lacking_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data cannot be had, and why, each reason once.

    Files are read, once for each data set; data that are generated are not made for it.
    """
    reasons: dict[str, str] = {}
    lacking = []
    for cell in cells:
        key = _source(cell.config)
        if key not in reasons:
            reasons[key] = _problem(cell.config)
        if reasons[key]:
            lacking.append(cell)
    return lacking, list(dict.fromkeys(filter(None, reasons.values())))


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
