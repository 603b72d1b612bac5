"""Flower's loop over rounds, with deadlines, round reports and a way to stop early."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from strategies.exchange import send
from strategies.round import RoundReport

if TYPE_CHECKING:
    from strategies.base import ClusteredStrategy

EvaluateModels = Callable[[int, ArrayRecord], MetricRecord | None]
RoundObserver = Callable[[RoundReport, ArrayRecord], bool | None]


def run_rounds(
    strategy: "ClusteredStrategy",
    grid: Grid,
    initial_arrays: ArrayRecord,
    num_rounds: int,
    train_config: ConfigRecord,
    evaluate_config: ConfigRecord,
    evaluate_fn: EvaluateModels | None,
    on_round: RoundObserver | None,
) -> Result:
    """Drive a strategy's four hooks; see `ClusteredStrategy.start` for the parameters."""
    strategy.last_round = num_rounds
    result = Result(arrays=initial_arrays)
    _evaluate_on_server(result, 0, evaluate_fn)
    for server_round in range(1, num_rounds + 1):
        # 1. Train: the strategy may ask clients first, inside configure_train.
        messages = strategy.configure_train(server_round, result.arrays, train_config, grid)
        with strategy.context.meter.part("train"):
            replies = send(grid, messages, strategy.round_timeout)
        arrays, train_metrics = strategy.aggregate_train(server_round, replies)
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
            if not report.evaluations:
                strategy.last_round = server_round
                _evaluate_on_clients(strategy, grid, result, server_round, evaluate_config)
            break
    return result


def _evaluate_on_clients(
    strategy: "ClusteredStrategy", grid: Grid, result: Result, server_round: int, config: ConfigRecord
) -> None:
    messages = strategy.configure_evaluate(server_round, result.arrays, config, grid)
    metrics = strategy.aggregate_evaluate(server_round, send(grid, messages, strategy.round_timeout))
    if metrics is not None:
        result.evaluate_metrics_clientapp[server_round] = metrics


def _evaluate_on_server(result: Result, server_round: int, evaluate_fn: EvaluateModels | None) -> None:
    if evaluate_fn and (metrics := evaluate_fn(server_round, result.arrays)) is not None:
        result.evaluate_metrics_serverapp[server_round] = metrics
