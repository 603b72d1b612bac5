"""Runs on digits, a pair of classes for each group, in which some clients are faulty in every round."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.core.metrics import adjusted_rand_index
from tests.faulty_app import FaultyGrid

LARGEST = 100.0
"""No weight of these models is so large: without faults the largest is below 1."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to; `ari` is over the clients that are healthy in the last round.

    `largest` is the largest value in its models, those of single clients included; NaN where one is.
    """

    rounds: int
    ari: float
    largest: float
    replies: Counter[str]
    error: str = ""

    @property
    def sound(self) -> bool:
        """Whether the run went to its end, with models as honest training makes them."""
        return not self.error and self.largest < LARGEST

    @property
    def refused(self) -> int:
        """Replies that did not count."""
        return sum(self.replies[kind] for kind in ("error", "missing", "invalid"))


def play(strategy: str, faults: Sequence[str], seed: int, share: float = 0.2, more: tuple[str, ...] = ()) -> Outcome:
    """Run the experiment with some clients faulty in every round, each in the next of these ways."""
    start = ("experiment=digits_label_skew", "eval_every=1000", "round_timeout=0.05")
    config = compose([*start, f"strategy={strategy}", f"seed={seed}", *more])
    task = build_task(config)
    grid = FaultyGrid(app, config.num_clients, faults, share, seed)
    reports: list[RoundReport] = []
    models = build_models(config, task)
    built = build_strategy(config, task)
    error = ""
    try:
        models = built.start(
            grid,
            models,
            num_rounds=config.num_rounds,
            train_config=message_settings(config, task),
            on_round=lambda report, _: reports.append(report),
        ).arrays
    except RuntimeError as problem:
        error = str(problem)
    replies = sum((Counter(report.replies) for report in reports), Counter[str]())
    if not reports:
        return Outcome(0, 0.0, 0.0, replies, error)
    last = reports[-1]
    truth = {client.key: client.cluster for client in built.federation.clients.values()}
    sick = grid.faulty(last.server_round)
    healthy = [key for key in sorted(last.assignment) if int(key) not in sick]
    ari = adjusted_rand_index([truth[key] or 0 for key in healthy], [last.assignment[key] for key in healthy])
    final = Models(models)
    kept = list((built.own_models(final) or {}).values())
    # NumPy's, which is NaN where any is.
    largest = float(np.max([np.abs(values).max() for values in (built.final_models(final).bank, *kept)]))
    return Outcome(len(reports), 1.0 if ari is None else ari, largest, replies, error)
