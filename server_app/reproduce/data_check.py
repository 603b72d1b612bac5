"""Check of the data that cells need: what lacks is told once, before the first cell is run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.build import build_task
from florets.server_app.reproduce.cells import Cell, folder_of
from florets.task.registry import reads_files, resolve

_WHOLE = {"mnist": (60_000, 10_000), "fashion_mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)}
"""Samples of public sets to train and to test on."""


def check_folder(given: Mapping[str, str], caller: Path) -> None:
    """Raise ConfigError if `data_dir` was given and is no folder."""
    if "data_dir" in given and not (folder := folder_of(given, "data_dir", caller)).is_dir():
        raise ConfigError([f"data_dir={folder}: there is no such folder; name the one that holds the data's files."])


def with_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data can be had, and what there is to say of the data, each once.

    Files are read, once for each data set; data that are generated are not made for it.

    Raises
    ------
    ConfigError
        If there are cells, and none of them has its data.
    """
    looks: dict[str, tuple[str, str]] = {}
    ready = []
    for cell in cells:
        key = _source(cell.config)
        if key not in looks:
            looks[key] = _look(cell.config)
        if not looks[key][0]:
            ready.append(cell)
    problems, notes = (list(dict.fromkeys(filter(None, (look[part] for look in looks.values())))) for part in (0, 1))
    if problems and not ready:
        raise ConfigError(problems)
    return ready, [*(f"cells without data are left out: {problem}" for problem in problems), *notes]


def _source(config: Config) -> str:
    """Return what says which files are read, and how."""
    return json.dumps([config.task.data, config.task.data_options, config.data_dir], sort_keys=True, default=str)


def _look(config: Config) -> tuple[str, str]:
    """Return why data cannot be had, and what else there is to say of them."""
    name = config.task.data
    try:
        resolve("data", name)
        if not reads_files(name):
            return "", ""
        data = build_task(config).data
    except ValueError as error:  # ConfigError is one
        return str(error), ""
    sizes = len(data.x_train), len(data.x_test)
    if sizes == (whole := _WHOLE.get(name, sizes)):
        return "", ""
    return "", (
        f"{name} in {config.data_dir} has {sizes[0]:,} samples to train and {sizes[1]:,} to test on, the public set "
        f"{whole[0]:,} and {whole[1]:,}: results are not to be compared with published ones."
    )
