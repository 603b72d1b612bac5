"""Rounds of an experiment on the in-process engine, each with its CPU seconds: what several benchmarks measure."""

import os
import time
from collections.abc import Callable
from itertools import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")

from flwr.app import ArrayRecord

from florets.conf.schema import Config
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, message_settings
from florets.strategies.base.report import RoundReport
from florets.task.task import Task


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
