"""The rounds of a run: train, test, report; a round below the quorum is tried again."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from florets.strategies.base.exchange import log, send
from florets.strategies.base.federation import BudgetSpent, FederationError, RoundFailed, TrainingDiverged
from florets.strategies.base.models import Models, untrained_of
from florets.strategies.base.report import RoundReport
from florets.task.device import seldom_collected
from florets.task.wire.flower import filled

TRIES = 3
"""Tries of a round below the quorum before the run ends."""

EvaluateModels = Callable[[int, ArrayRecord], MetricRecord | None]
RoundObserver = Callable[[RoundReport, ArrayRecord], bool | None]


class Earlier(NamedTuple):
    """An interrupted run: its completed rounds, and whether its observer ended it after the last."""

    rounds: int = 0
    stopped: bool = False


@seldom_collected()
def run_rounds(
    strategy: Any,
    grid: Grid,
    initial_arrays: ArrayRecord,
    train_config: ConfigRecord,
    evaluate_config: ConfigRecord,
    evaluate_fn: EvaluateModels | None,
    on_round: RoundObserver | None,
    earlier: Earlier,
) -> Result:
    """Run a strategy's rounds up to its `last_round`; see `Strategy.start`."""
    own = {name: value for layer in strategy.layers for name, value in layer.message.items()}
    train_config, evaluate_config = filled(train_config.copy(), own), filled(evaluate_config.copy(), own)
    strategy.check(Models(initial_arrays, strategy.shared_layers, untrained_of(train_config)))
    result, last = Result(arrays=initial_arrays), strategy.last_round

    def test(server_round: int) -> None:
        with strategy.context.meter.part("evaluate"):
            messages = strategy.configure_evaluate(server_round, result.arrays, evaluate_config, grid)
            replies = send(grid, messages, strategy.context.timeout, strategy.context.name_of)
            metrics = strategy.aggregate_evaluate(server_round, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[server_round] = metrics

    def test_at_end(server_round: int) -> None:
        if not strategy.state.evaluations:
            strategy.last_round = server_round
            test(server_round)

    def evaluate_on_server(server_round: int) -> None:
        if evaluate_fn and (metrics := evaluate_fn(server_round, result.arrays)) is not None:
            result.evaluate_metrics_serverapp[server_round] = metrics

    def look_again() -> None:
        # What is left to do needs a round in which to ask clients.
        strategy.open_round(earlier.rounds, result.arrays, train_config, grid)
        strategy.close_round()

    evaluate_on_server(earlier.rounds)
    if earlier.rounds and (earlier.stopped or earlier.rounds >= last):
        look_again()
        test_at_end(earlier.rounds)
        return result
    for server_round in range(earlier.rounds + 1, last + 1):
        # 1. Train: the strategy may ask clients first, inside configure_train.
        try:
            arrays, train_metrics = _train(strategy, grid, result.arrays, server_round, train_config)
        except BudgetSpent as end:
            if strategy.last is None and not earlier.rounds:
                raise
            strategy.privacy.ended = str(end)
            log.warning("%s", end)
            if strategy.last is None:
                look_again()
            test_at_end(strategy.context.server_round)
            break
        result.arrays = result.arrays if arrays is None else arrays
        if train_metrics is not None:
            result.train_metrics_clientapp[server_round] = train_metrics
        # 2. Test the new models, where it is due.
        test(server_round)
        evaluate_on_server(server_round)
        # 3. Report; an observer may end the run.
        report = strategy.close_round()
        if on_round and on_round(report, result.arrays):
            test_at_end(server_round)
            break
    return result


def _train(
    strategy: Any, grid: Grid, arrays: ArrayRecord, server_round: int, config: ConfigRecord
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Run a round's exchanges up to its next models; below the quorum once more, from the state before it."""
    for attempt in range(1, TRIES + 1):
        before = deepcopy(strategy.state), strategy.last
        try:
            messages = strategy.configure_train(server_round, arrays, config, grid)
            with strategy.context.meter.part("train"):
                replies = send(grid, messages, strategy.context.timeout, strategy.context.name_of)
            found: tuple[ArrayRecord | None, MetricRecord | None] = strategy.aggregate_train(server_round, replies)
            return found
        except FederationError as failure:
            # Of the failed try only its figures stay, in the round's meter: what is saved now is the last good round.
            strategy.state, strategy.last = before
            if not isinstance(failure, RoundFailed):
                raise
            if attempt == TRIES:
                kind = TrainingDiverged if isinstance(failure, TrainingDiverged) else FederationError
                raise kind(f"{failure} (tried {TRIES} times)") from None
            log.warning("%s. The round is repeated: try %d of %d", failure, attempt + 1, TRIES)
    raise AssertionError("a round is tried at least once")
