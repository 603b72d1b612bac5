"""Fault by strategy: what a run comes to when a fifth of its clients are faulty in every round.

Run: ``python benchmarks/bench_faults.py --strategies clove,ifca --seeds 3``. Digits, a pair of classes for each
group, 20 clients in 5 groups, 10 rounds; in every round 4 clients, drawn anew, send nothing but faulty replies. The
table shows the ARI over the clients that are healthy in the last round (the least over the seeds), their accuracy
(mean over the seeds), and how the replies were counted. FAILED: the run ended early, or a model is not finite.

two_phase groups these clients with its own defaults too, but takes 30 s a run. A linear classifier and short moment
rounds take one second: ``--strategies two_phase strategy.moment_rounds=3 strategy.inner_steps=2
task.model_options.hidden=[]``.
"""

import argparse
import logging
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from flwr.app import ArrayRecord

from client_app.app import app
from conf.compose import compose
from server_app.build import build_models, build_strategy, build_task, message_settings
from strategies.core.metrics import adjusted_rand_index
from strategies.round import RoundReport
from task.wire import bank
from tests.faulty_app import FAULTS, GRID_FAULTS, FaultyGrid

EXPERIMENT = ("experiment=digits_label_skew", "eval_every=1000", "round_timeout=0.05")


@dataclass(frozen=True)
class Outcome:
    """What one run with faulty clients came to."""

    rounds: int
    ari: float
    accuracy: float
    finite: bool
    replies: Counter[str]
    error: str = ""


def play(strategy: str, fault: str, seed: int, share: float = 0.2, more: tuple[str, ...] = ()) -> Outcome:
    """Run the experiment with some clients faulty in every round."""
    config = compose([*EXPERIMENT, f"strategy={strategy}", f"seed={seed}", *more])
    task = build_task(config)
    grid = FaultyGrid(app, config.num_clients, fault, share, seed)
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
    replies: Counter[str] = Counter()
    for report in reports:
        replies.update(report.replies)
    if not reports:
        return Outcome(0, 0.0, 0.0, False, replies, error)
    last = reports[-1]
    truth = {client.key: client.cluster for client in built.federation.clients.values()}
    sick = grid.faulty(last.server_round)
    healthy = [key for key in sorted(last.assignment) if int(key) not in sick]
    ari = adjusted_rand_index([truth[key] or 0 for key in healthy], [last.assignment[key] for key in healthy])
    accuracies = [test.accuracy or 0.0 for key, test in last.evaluations.items() if key in healthy]
    return Outcome(
        rounds=len(reports),
        ari=1.0 if ari is None else ari,
        accuracy=float(np.mean(accuracies)) if accuracies else 0.0,
        finite=bool(np.isfinite(_values(models)).all()),
        replies=replies,
        error=error,
    )


def _values(models: ArrayRecord) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    return bank.unpack(models)[0]


def _cell(outcomes: list[Outcome], num_rounds: int) -> str:
    failed = [outcome for outcome in outcomes if outcome.error or outcome.rounds < num_rounds or not outcome.finite]
    if failed:
        return f"FAILED: {failed[0].error[:60] or 'models not finite'}"
    ari = [outcome.ari for outcome in outcomes]
    accuracy = 100 * float(np.mean([outcome.accuracy for outcome in outcomes]))
    return f"{min(ari):.2f}, {accuracy:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", default="clove", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--faults", default="", help="names, separated by commas; all where it is left out")
    parser.add_argument("overrides", nargs="*", help="further settings of the experiment")
    given = parser.parse_args()
    logging.getLogger("florets").setLevel(logging.CRITICAL)
    names = given.strategies.split(",")
    print(f"| fault | {' | '.join(f'{name}: least ARI, accuracy' for name in names)} | replies of a round |")
    print("|---" * (len(names) + 2) + "|")
    for fault in given.faults.split(",") if given.faults else ["none", *FAULTS, *GRID_FAULTS]:
        cells, replies, rounds = [], Counter[str](), 0
        for name in names:
            more = tuple(given.overrides)
            outcomes = [play(name, fault, seed, given.share, more) for seed in range(given.seeds)]
            cells.append(_cell(outcomes, compose([*EXPERIMENT, f"strategy={name}", *more]).num_rounds))
            for outcome in outcomes:
                replies.update(outcome.replies)
                rounds += outcome.rounds
        counts = ", ".join(f"{kind} {number / max(rounds, 1):.1f}" for kind, number in replies.items() if number)
        print(f"| {fault} | {' | '.join(cells)} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
