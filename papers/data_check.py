"""Check of the data that cells need: what lacks is told once, before the first cell is run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.papers.cells import Cell, folder_of
from florets.server_app.build import build_task
from florets.task.registry import check_options, reads_files, resolve

WHOLE = {"mnist": 70_000, "fashion_mnist": 70_000, "cifar10": 60_000, "ag_news": 127_600}
"""Samples of public sets, to train and to test on."""


class _Look(NamedTuple):
    """Why data cannot be had, and what else there is to say of them."""

    problem: str = ""
    note: str = ""


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
    looks: dict[str, _Look] = {}
    ready = []
    for cell in cells:
        key = _source(cell.config)
        if key not in looks:
            looks[key] = _look(cell.config)
        if not looks[key].problem:
            ready.append(cell)
    problems = list(dict.fromkeys(look.problem for look in looks.values() if look.problem))
    notes = list(dict.fromkeys(look.note for look in looks.values() if look.note))
    if problems and not ready:
        raise ConfigError(problems)
    return ready, [*(f"cells without data are left out: {problem}" for problem in problems), *notes]


def _source(config: Config) -> str:
    """Return what says which files are read, and how."""
    return json.dumps([config.task.data, config.task.data_options, config.data_dir], sort_keys=True, default=str)


def _look(config: Config) -> _Look:
    name = config.task.data
    try:
        check_options(resolve("data", name), config.task.data_options, "data", name)
        if not reads_files(name):
            return _Look()
        data = build_task(config).data
    except ValueError as error:  # ConfigError is one
        return _Look(problem=str(error))
    samples = len(data.x_train) + (0 if data.pooled else len(data.x_test))
    if samples == (whole := WHOLE.get(name, samples)):
        return _Look()
    return _Look(
        note=f"{name} in {config.data_dir} has {samples:,} samples, the public set {whole:,}: results are not to be "
        "compared with published ones."
    )
