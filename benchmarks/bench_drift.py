"""Groups that change: rounds until the groups are found again, false alarms, accuracy and bytes.

Run: ``python -m benchmarks.bench_drift`` for a look, ``python -m benchmarks.bench_drift --seeds 10`` for the table of
docs/drift.md; ``--preset drift/digits_gradual`` and the like for others, ``--keys task.drift.rounds=[]`` for other
settings, ``--rows watch,frozen`` for some rows. Clients are computed in blocks (`batch_clients`). One thread.
"""

import argparse
import time
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from flwr.app import ArrayRecord

from benchmarks.measuring import play
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.server_app.build import build_strategy, build_task
from florets.strategies.base.report import RoundReport
from florets.strategies.core.metrics import adjusted_rand_index

ROWS = {
    "watch": [],
    "frozen": ["strategy.watch=null"],
    "never frozen": ["strategy.watch=null", "strategy.stop_when_stable=false"],
    "ifca": ["strategy=ifca"],
    "feddrift": ["strategy=feddrift"],
    "oracle": ["strategy=oracle"],
    "fedavg": ["strategy=fedavg"],
}


@dataclass
class Outcome:
    """Result of one run, round by round."""

    ari: list[float] = field(default_factory=list)
    accuracy: dict[int, float] = field(default_factory=dict)
    num_bytes: int = 0
    asked: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)

    def rounds_until_found(self, start: int) -> int | None:
        """Return the rounds from the change until the ARI is 1 and stays there; None: never."""
        wrong = [number for number, ari in enumerate(self.ari, 1) if number >= start and ari < 1]
        if not wrong:
            return 0
        return None if wrong[-1] == len(self.ari) else wrong[-1] + 1 - start


def outcome_of(config: Config) -> Outcome:
    """Run one experiment in this process, without files."""
    task = build_task(config)
    task.check()
    strategy, outcome = build_strategy(config, task), Outcome()

    def on_round(report: RoundReport, _: ArrayRecord) -> None:
        truth = {key: client.cluster for key, client in strategy.federation.clients.items()}
        keys = sorted(report.assignment)
        ari = adjusted_rand_index([truth[key] for key in keys], [report.assignment[key] for key in keys])
        outcome.ari.append(1.0 if ari is None else ari)
        outcome.num_bytes += report.bytes_down + report.bytes_up
        if report.evaluations:
            outcome.accuracy[report.server_round] = fmean(e.accuracy or 0.0 for e in report.evaluations.values())
        told = report.details.get("watch")
        if isinstance(told, dict):
            outcome.asked += [report.server_round] if told.get("asked") else []
            outcome.opened += [report.server_round] if told.get("opened") else []

    play(strategy, config, task, on_round, config.num_clients)
    return outcome


def spread(values: list[float]) -> str:
    return f"{fmean(values):.3g} ± {pstdev(values):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="drift/digits")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", default="watch,frozen")
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--keys", nargs="*", default=[])
    given = parser.parse_args()
    begin = time.process_time()
    print(f"{given.preset} {' '.join(given.keys)}, seeds {given.first} to {given.first + given.seeds - 1}")
    for row in given.rows.split(","):
        outcomes = []
        for seed in range(given.first, given.first + given.seeds):
            overrides = [f"experiment={given.preset}", *ROWS[row], f"seed={seed}", f"eval_every={given.eval_every}"]
            config = compose([*overrides, *given.keys])
            outcomes.append(outcome_of(config))
            found, start = outcomes[-1], (config.task.drift.rounds or [1])[0]
            print(
                f"  {row}, seed {seed}: ARI {' '.join(f'{value:.2f}' for value in found.ari)}; asked in "
                f"{found.asked}, opened in {found.opened}, found again after {found.rounds_until_found(start)}",
                flush=True,
            )
        again = [outcome.rounds_until_found(start) for outcome in outcomes]
        ends = [list(outcome.accuracy.values())[-1] for outcome in outcomes]
        print(
            f"{row}: found again in {sum(value is not None for value in again)} of {len(again)} (rounds {again}), "
            f"ARI at the end {spread([outcome.ari[-1] for outcome in outcomes])}, mean ARI from then on "
            f"{spread([fmean(outcome.ari[start - 1 :]) for outcome in outcomes])}, accuracy % "
            f"{spread([100 * end for end in ends])}, MB {spread([o.num_bytes / 1e6 for o in outcomes])}",
            flush=True,
        )
    print(f"{time.process_time() - begin:.0f} CPU s")


if __name__ == "__main__":
    main()
