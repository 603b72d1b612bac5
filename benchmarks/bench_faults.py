"""Fault by strategy: what a run comes to when a fifth of its clients are faulty in every round.

Run: ``python -m benchmarks.bench_faults``. Digits, a pair of classes for each group; in every round 4 of 20 clients,
drawn anew, send nothing but faulty replies. The Markdown table shows, for each strategy, the least ARI over the seeds
of the clients that are healthy in the last round, and in brackets how many replies of a run were refused or lacking
(mean). For strategies that give each client a model of its own, or all one, it is the least mean accuracy of these
clients in percent. FAILED: a run ended early. CORRUPT: a model is not finite, or has values that no model without
faults has; the clients' own models count as well.

The first row has no faults. Its settings are those of the whole column, chosen so that it is 1.0 with every seed:
IFCA's random start settles for good in round 1, and with 5 groups and short training mostly for a wrong grouping, so
that its column has 3 groups and 20 local epochs; two_phase finds the 5 groups with its own defaults too, but takes
30 s a run, and has a linear classifier and short moment rounds here; flux is told the number of groups, because its
DBSCAN splits some without faults, too. Hangs, slow clients and deaths need processes: see
tests/test_flower_run.py. FedEM, FedRC and FedSoft have SGD and more local epochs, FedEM and FedSoft
two groups of clients, FedRC two concepts; FedDrift asks its clients in every round.
"""

import argparse
import logging
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
from florets.strategies.registry import settings_type
from tests.faulty_app import ALL_FAULTS, FaultyGrid

EXPERIMENT = ("experiment=digits_label_skew", "eval_every=1000", "round_timeout=0.05")

_SOFT = ("k=2", "task.num_clusters=2", "train=sgd", "train.local_epochs=5", "train.learning_rate=0.2")

SETTINGS = {
    "ifca": ("k=3", "task.num_clusters=3", "train.local_epochs=20", "num_rounds=6"),
    "two_phase": ("strategy.moment_rounds=3", "task.model_options.hidden=[]"),
    "flux": ("strategy.clustering=kmeans",),
    "fedem": _SOFT,
    "fedsoft": _SOFT,
    "fedrc": (
        *_SOFT[:-1],
        "task.partition=composed",
        "task.partition_options={label_shifts: [0, 5], alpha: 0.1, reuse: clusters}",
        "train.learning_rate=0.5",
        "train.batch_size=20",
    ),
    "feddrift": ("strategy.period=1", "train.local_epochs=5"),
}
"""Settings of some strategies' columns."""

BY_ACCURACY = ("fedrc",)
"""Strategies with groups that take more rounds than these to find them: the table has their accuracy."""

LARGEST = 100.0
"""No weight of these models is so large: without faults the largest is below 1."""

REFUSED = ("error", "missing", "invalid")


@dataclass(frozen=True)
class Outcome:
    """What one run with faulty clients came to; `largest` is the largest value in its models, NaN where one is.

    `ari` and `accuracy` are over the clients that are healthy in the last round.
    """

    rounds: int
    ari: float
    accuracy: float
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
        return sum(self.replies[kind] for kind in REFUSED)


def play(strategy: str, faults: Sequence[str], seed: int, share: float = 0.2, more: tuple[str, ...] = ()) -> Outcome:
    """Run the experiment with some clients faulty in every round, each in the next of these ways."""
    config = compose([*EXPERIMENT, f"strategy={strategy}", f"seed={seed}", *more])
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
        return Outcome(0, 0.0, 0.0, 0.0, replies, error)
    last = reports[-1]
    truth = {client.key: client.cluster for client in built.federation.clients.values()}
    sick = grid.faulty(last.server_round)
    healthy = [key for key in sorted(last.assignment) if int(key) not in sick]
    ari = adjusted_rand_index([truth[key] or 0 for key in healthy], [last.assignment[key] for key in healthy])
    final = Models(models)
    kept = list((built.own_models(final) or {}).values())
    # NumPy's, which is NaN where any is.
    largest = float(np.max([np.abs(values).max() for values in (built.final_models(final).bank, *kept)]))
    results = [last.evaluations[key].accuracy or 0.0 for key in healthy if key in last.evaluations]
    accuracy = float(np.mean(results)) if results else 0.0
    return Outcome(len(reports), 1.0 if ari is None else ari, accuracy, largest, replies, error)


def cell(outcomes: list[Outcome], has_groups: bool) -> str:
    """Return what the table says of the runs of one fault and strategy."""
    for outcome in outcomes:
        if not outcome.sound:
            return f"FAILED: {outcome.error[:60]}" if outcome.error else f"CORRUPT: {outcome.largest:g}"
    least = min(outcome.ari if has_groups else outcome.accuracy for outcome in outcomes)
    shown = f"{least:.2f}" if has_groups else f"{100 * least:.0f} %"
    return f"{shown} ({np.mean([o.refused for o in outcomes]):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default="clove,ifca,cfl_gp,two_phase", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--faults", default="", help="names, separated by commas; all where it is left out")
    parser.add_argument("overrides", nargs="*", help="further settings, of all columns")
    given = parser.parse_args()
    logging.getLogger("florets").setLevel(logging.CRITICAL)
    names = given.strategies.split(",")
    print(f"| fault | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for fault in given.faults.split(",") if given.faults else ["none", *ALL_FAULTS]:
        row = []
        for name in names:
            more = (*SETTINGS.get(name, ()), *given.overrides)
            faults = [] if fault == "none" else [fault]
            found = [play(name, faults, seed, given.share, more) for seed in range(given.seeds)]
            row.append(cell(found, settings_type(name).has_groups and name not in BY_ACCURACY))
        print(f"| {fault} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
