"""A small mixed regression on the real clients, in a grid that watches and may spoil messages."""

import itertools
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
import yaml
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config, as_plain
from florets.conf.validate import checked_config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.two_phase.strategy import TwoPhase
from florets.task.wire import kinds
from tests.fakes import asked_for

BASE = (
    "task=linear k=3 num_clients=24 num_rounds=2 task.num_clusters=3 task.loss=half_squared_error "
    "task.data=tests.own_functions:mixed_regression task.partition=tests.own_functions:in_order "
    "strategy=two_phase train.optimizer=sgd train.learning_rate=0.1 "
    "train.local_epochs=5 train.batch_size=100"
)

Fault = Callable[[RecordDict], RecordDict]


@dataclass
class Watched:
    """`faults[(kind, round, client)]` changes a reply; what it raises is the client's failure."""

    faults: Mapping[tuple[str, int, int], Fault] = field(default_factory=dict)
    seen: list[tuple[str, int, int, RecordDict]] = field(default_factory=list)
    answered: list[tuple[int, RecordDict]] = field(default_factory=list)

    def grid(self, num_clients: int) -> LocalGrid:
        return LocalGrid(cast(ClientApp, self._handle), num_clients)

    def asked(self, kind: str, server_round: int) -> list[int]:
        return [c for k, r, c, _ in self.seen if (k, r) == (kind, server_round)]

    def sent(self, kind: str, server_round: int, client: int) -> list[RecordDict]:
        return [content for k, r, c, content in self.seen if (k, r, c) == (kind, server_round, client)]

    def array_bytes(self, server_round: int) -> int:
        """Bytes of the arrays' values alone, in all messages and replies of a round."""
        contents = [content for _, r, _, content in self.seen if r == server_round]
        contents += [content for r, content in self.answered if r == server_round]
        return sum(
            array.numpy().nbytes
            for content in contents
            for record in content.array_records.values()
            for array in record.values()
        )

    def _handle(self, message: Message, context: Context) -> Message:
        client, kind = int(context.node_config["partition-id"]), asked_for(message)
        server_round = int(message.content.config_records[kinds.CONFIG].get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
        self.seen.append((kind, server_round, client, message.content))
        reply = app(message, context)
        self.answered.append((server_round, reply.content))
        fault = self.faults.get((kind, server_round, client))
        return Message(fault(reply.content), reply_to=message) if fault else reply


@dataclass
class Outcome:
    strategy: TwoPhase
    reports: list[RoundReport]
    banks: list[np.ndarray]
    errors: list[float]
    arrays: ArrayRecord


def run(*overrides: str, watched: Watched | None = None) -> Outcome:
    """Run the small problem; `errors` are the distances to the true models after each round."""
    config = _config(overrides)
    problem, reports, banks = build_task(config), [], []

    def on_round(report: RoundReport, arrays: ArrayRecord) -> None:
        reports.append(report)
        banks.append(Models(arrays).bank)

    strategy = build_strategy(config, problem)
    assert isinstance(strategy, TwoPhase)
    grid = (watched or Watched()).grid(config.num_clients)
    settings = message_settings(config, problem)
    result = strategy.start(grid, build_models(config, problem), config.num_rounds, None, settings, on_round=on_round)
    truth = problem.data.true_models
    assert truth is not None
    return Outcome(strategy, reports, banks, [distance(bank, truth) for bank in banks], result.arrays)


def distance(bank: np.ndarray, truth: np.ndarray) -> float:
    """The paper's d: over the permutations of the models, the least of the largest errors."""
    errors = np.linalg.norm(bank[:, None] - truth[None], axis=2)
    return min(max(errors[order, range(len(truth))]) for order in itertools.permutations(range(len(truth))))


@cache
def _base() -> dict[str, Any]:
    return as_plain(compose(BASE.split(" ")))


def _config(overrides: tuple[str, ...]) -> Config:
    """Compose once and lay the keys over it: Hydra takes longer than the runs."""
    values = deepcopy(_base())
    for override in overrides:
        *groups, name = override.partition("=")[0].split(".")
        place = values
        for group in groups:
            place = place[group]
        place[name] = yaml.safe_load(override.partition("=")[2])
    values["task"]["data_options"] = {"clients": values["num_clients"]}
    config, problems = checked_config(values)
    assert config is not None
    assert not problems
    return config
