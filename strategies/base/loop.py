"""Flower's loop over rounds, with deadlines, round reports and a way to stop early."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import log, send
from florets.strategies.base.federation import FederationError, RoundFailed, TrainingDiverged
from florets.strategies.base.models import Models, untrained_of
from florets.strategies.base.report import Evaluation, RoundReport
from florets.strategies.settings import RunKeys

_NEW_OBJECTS = 20_000
"""After so many new ones the young objects are looked through: 700 are those of a few dozen messages."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Leave alone, within the block, what there is by now, and look through new objects more seldom.

    An exchange with many clients makes tens of thousands of records, which are freed without any search: the search
    found nothing in them, and took up to a quarter of a round of small models.
    """
    before = gc.get_threshold()
    gc.freeze()
    # 0 is never.
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


EvaluateModels = Callable[[int, ArrayRecord], MetricRecord | None]
RoundObserver = Callable[[RoundReport, ArrayRecord], bool | None]


class Rounds(Protocol):
    """What the loop needs of a strategy; `Strategy` says what each part does."""

    last_round: int | None
    run: RunKeys
    shared_layers: tuple[str, ...]

    @property
    def context(self) -> Round: ...  # noqa: D102 - see Strategy
    @property
    def evaluations(self) -> Mapping[str, Evaluation]: ...  # noqa: D102
    def check(self, models: Models) -> None: ...  # noqa: D102
    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None: ...  # noqa: D102
    def attempt(  # noqa: D102
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> tuple[ArrayRecord | None, MetricRecord | None]: ...
    def configure_evaluate(  # noqa: D102
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]: ...
    def aggregate_evaluate(self, server_round: int, replies: list[Message]) -> MetricRecord | None: ...  # noqa: D102
    def close_round(self, server_round: int) -> RoundReport: ...  # noqa: D102


@dataclass(frozen=True)
class Earlier:
    """What an interrupted run has done: its completed rounds, and whether its observer ended it after the last."""

    rounds: int = 0
    stopped: bool = False


NOTHING = Earlier()


@seldom_collected()
def run_rounds(
    strategy: Rounds,
    grid: Grid,
    initial_arrays: ArrayRecord,
    num_rounds: int,
    configs: tuple[ConfigRecord, ConfigRecord],
    evaluate_fn: EvaluateModels | None,
    on_round: RoundObserver | None,
    earlier: Earlier,
) -> Result:
    """Drive a strategy's four hooks; see `Strategy.start` for the parameters.

    `configs` are the settings of training and of evaluation.
    """
    train_config, evaluate_config = configs
    done_rounds = earlier.rounds
    strategy.last_round = num_rounds
    strategy.check(Models(initial_arrays, strategy.shared_layers, untrained_of(train_config)))
    result = Result(arrays=initial_arrays)
    _evaluate_on_server(result, done_rounds, evaluate_fn)
    if done_rounds and (earlier.stopped or done_rounds >= num_rounds):
        # The interrupted run has trained to its end: what is left to do needs clients and a round to ask them in.
        strategy.open_round(done_rounds, result.arrays, train_config, grid)
        strategy.close_round(done_rounds)
        _evaluate_at_end(strategy, grid, result, done_rounds, evaluate_config)
        return result
    for server_round in range(done_rounds + 1, num_rounds + 1):
        # 1. Train: the strategy may ask clients first, inside configure_train.
        arrays, train_metrics = _train(strategy, grid, result.arrays, server_round, train_config)
        result.arrays = result.arrays if arrays is None else arrays
        if train_metrics is not None:
            result.train_metrics_clientapp[server_round] = train_metrics
        # 2. Test the new models, where it is due.
        with strategy.context.meter.part("evaluate"):
            _evaluate_on_clients(strategy, grid, result, server_round, evaluate_config)
        _evaluate_on_server(result, server_round, evaluate_fn)
        # 3. Report; whoever watches may end the run.
        report = strategy.close_round(server_round)
        if on_round and on_round(report, result.arrays):
            _evaluate_at_end(strategy, grid, result, server_round, evaluate_config)
            break
    return result


def _train(
    strategy: Rounds, grid: Grid, arrays: ArrayRecord, server_round: int, config: ConfigRecord
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Run a round's exchanges up to its next models; below the quorum once more, from the state before it."""
    for attempt in range(1, strategy.run.round_tries + 1):
        try:
            return strategy.attempt(server_round, arrays, config, grid)
        except RoundFailed as failure:
            if failure.certain or attempt == strategy.run.round_tries:
                tries = f" (tried {attempt} times)" if attempt > 1 else ""
                kind = TrainingDiverged if isinstance(failure, TrainingDiverged) else FederationError
                raise kind(f"{failure}{tries}") from failure
            log.warning("%s. The round is repeated: try %d of %d", failure, attempt + 1, strategy.run.round_tries)
    raise ValueError(f"round_tries={strategy.run.round_tries}: must be at least 1")


def _evaluate_at_end(strategy: Rounds, grid: Grid, result: Result, server_round: int, config: ConfigRecord) -> None:
    if not strategy.evaluations:
        strategy.last_round = server_round
        _evaluate_on_clients(strategy, grid, result, server_round, config)


def _evaluate_on_clients(
    strategy: Rounds, grid: Grid, result: Result, server_round: int, config: ConfigRecord
) -> None:
    messages = strategy.configure_evaluate(server_round, result.arrays, config, grid)
    replies = send(grid, messages, strategy.context.patience, strategy.context.name_of)
    metrics = strategy.aggregate_evaluate(server_round, replies)
    if metrics is not None:
        result.evaluate_metrics_clientapp[server_round] = metrics


def _evaluate_on_server(result: Result, server_round: int, evaluate_fn: EvaluateModels | None) -> None:
    if evaluate_fn and (metrics := evaluate_fn(server_round, result.arrays)) is not None:
        result.evaluate_metrics_serverapp[server_round] = metrics
