"""Tools of the benchmarks: runs in process whose messages are seen, and a function in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import Result

from florets.conf.schema import Config
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, message_settings
from florets.strategies.base.loop import RoundObserver
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.base.strategy import Strategy
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


Heard = tuple[int, Message, Message]
"""A client, what it was sent, and its reply."""


class ListeningGrid(LocalGrid):
    """A LocalGrid with the project's clients; `hear` is given all replies of an exchange, and returns them."""

    hear: Callable[[Sequence[Heard]], list[Message]]

    def __init__(self, num_clients: int) -> None:
        side = client_side()
        super().__init__(side.app, num_clients, None, side.in_blocks, side.adopt)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies."""
        sent = {message_id: self._waiting[message_id] for message_id in message_ids if message_id in self._waiting}
        pairs = [(sent[reply.metadata.reply_to_message_id], reply) for reply in super().pull_messages(sent)]
        nodes = [self._contexts[message.metadata.dst_node_id].node_config for message, _ in pairs]
        return self.hear([(int(node["partition-id"]), *pair) for node, pair in zip(nodes, pairs, strict=True)])


def ended(config: Config, task: Task, grid: LocalGrid) -> tuple[RoundReport, int, dict[int, ArrayRecord]]:
    """Run an experiment without files; return its last report, its number of models, and each client's model."""
    config = grid.prepare(config, task)
    strategy, reports = build_strategy(config, task), list[RoundReport]()
    models = Models(started(strategy, config, task, grid, lambda report, _: reports.append(report)).arrays)
    own, final, assignment = strategy.own_models(models) or {}, strategy.final_models(models), reports[-1].assignment
    vectors = {key: own[key] if key in own else final.bank[assignment[key]] for key in sorted(assignment, key=int)}
    return reports[-1], final.count, {int(key): final.layout.arrays(one) for key, one in vectors.items()}


def module_of(task: Task, model: Mapping[str, Array]) -> torch.nn.Module:
    """Return a model in eval mode."""
    module = task.build_model().eval()
    module.load_state_dict({name: torch.from_numpy(array.numpy().copy()) for name, array in model.items()})
    return module


def last_of_each(overrides: Iterable[str]) -> list[str]:
    """Return overrides without those whose key is given again later."""
    return list({text.partition("=")[0]: text for text in overrides}.values())
