"""Runs of a strategy on a grid of the test's own, without results."""

from typing import Any

from flwr.serverapp import Grid

from florets.conf.schema import Config
from florets.server_app.build import build_models, build_strategy, message_settings
from florets.strategies.base.report import RoundReport
from florets.strategies.base.strategy import Strategy
from florets.task.task import Task


def run_on(grid: Grid, config: Config, task: Task) -> tuple[Strategy[Any, Any], list[RoundReport]]:
    """Run all rounds; return the strategy as it is then, and the rounds' reports."""
    strategy = build_strategy(config, task)
    reports: list[RoundReport] = []
    strategy.start(
        grid,
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    return strategy, reports
