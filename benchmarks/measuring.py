"""Tools of the benchmarks: timed rounds of an experiment in process, and a function in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from flwr.serverapp.strategy import Result

from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, message_settings
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
