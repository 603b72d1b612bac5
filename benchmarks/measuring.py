"""Tools of the benchmarks: timed rounds of an experiment in process, and a function in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from flwr.serverapp.strategy import Result

from florets.conf.schema import Config
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, message_settings
from florets.strategies.base.strategy import RoundObserver, Strategy
from florets.task.task import Task

ROOT = Path(__file__).resolve().parent.parent


def in_own_process(file: str, function: str, *arguments: Any) -> dict[str, float]:
    """Return the figures of a benchmark's function by name; where it fails, end the program with its output.

    `file` is the benchmark's ``__file__``, `arguments` are numbers, texts, and lists of them.
    """
    module = f"benchmarks.{Path(file).stem}"
    code = f"import json; from {module} import {function}; print(json.dumps({function}(*{list(arguments)!r})))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    if told.returncode:
        sys.exit(told.stderr or told.stdout)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def play(strategy: Strategy[Any, Any], config: Config, task: Task, on_round: RoundObserver, block_size: int) -> None:
    """Run an experiment in process without files; at most `block_size` clients are computed together."""
    side = client_side()
    grid = LocalGrid(side.app, config.num_clients, None, side.in_blocks, side.adopt)
    grid.share(task)
    grid.block_size = block_size
    started(strategy, config, task, grid, on_round)


def started(
    strategy: Strategy[Any, Any], config: Config, task: Task, grid: LocalGrid, on_round: RoundObserver
) -> Result:
    """Run an experiment on a grid that has its task, without files, and return the models that it ends with."""
    return strategy.start(
        grid,
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=on_round,
    )


def timed_rounds(config: Config, task: Task, block_size: int, clock: Callable[[], float]) -> list[float]:
    """Run an experiment; return the seconds of each round after the first, by a clock read at the end of each."""
    marks: list[float] = []
    play(build_strategy(config, task), config, task, lambda *_: marks.append(clock()), block_size)
    return [end - begin for begin, end in pairwise(marks)]
