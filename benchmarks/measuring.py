"""Tools of the benchmarks: timed rounds of an experiment in process, and a function in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord

from florets.conf.schema import Config
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, message_settings
from florets.strategies.base.report import RoundReport
from florets.task.task import Task

ROOT = Path(__file__).resolve().parent.parent


def in_own_process(file: str, function: str, *arguments: Any) -> dict[str, float]:
    """Return what a benchmark's function finds; end the program with what it said where it fails.

    Parameters
    ----------
    file
        The benchmark's ``__file__``.
    function
        Name of a function of that file, which returns figures by name.
    arguments
        What it is given; numbers, texts, and lists of them.
    """
    module = f"benchmarks.{Path(file).stem}"
    code = f"import json; from {module} import {function}; print(json.dumps({function}(*{list(arguments)!r})))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    if told.returncode:
        sys.exit(told.stderr or told.stdout)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def local_grid(config: Config, task: Task, block_size: int = 1) -> LocalGrid:
    """Return a grid of the experiment's clients, which have the server's task as in the `florets` command."""
    side = client_side()
    grid = LocalGrid(side.app, config.num_clients, None, side.in_blocks, side.adopt)
    grid.share(task)
    grid.block_size = block_size
    return grid


def timed_rounds(
    config: Config, task: Task, block_size: int = 1, clock: Callable[[], float] = time.process_time
) -> tuple[list[float], list[RoundReport]]:
    """Run an experiment; return the seconds of each round after the first, and the reports of all.

    Parameters
    ----------
    block_size
        Most clients whose work is computed together; 1: each by itself.
    clock
        What is read at the end of each round; by default CPU seconds.
    """
    marks: list[float] = []
    reports: list[RoundReport] = []

    def on_round(report: RoundReport, _: ArrayRecord) -> None:
        marks.append(clock())
        reports.append(report)

    build_strategy(config, task).start(
        local_grid(config, task, block_size),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=on_round,
    )
    return [end - begin for begin, end in pairwise(marks)], reports
