"""Wall time and CPU seconds of a round with one process and with worker processes, in one run; medians.

Run: ``python benchmarks/bench_workers.py`` (1,000 clients of digits), or with ``--data-dir DIR`` also MNIST label
skew 1; clustering rounds of CLoVE with test, ``workers=1`` and ``2`` in turns. Beside the wall time, which other
processes lengthen, stand the CPU seconds of the server's process and of the busiest worker: what a round takes on
idle cores lies between the larger of them and their sum.
"""

import argparse
import json
import os
import statistics
import sys
import time
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from florets.conf.compose import compose
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.server_app.fork_server import start_fork_server
from florets.server_app.local_grid import LocalGrid
from florets.server_app.main import client_side
from florets.server_app.workers.worker_grid import WorkerGrid


class Times(NamedTuple):
    """Seconds of a round: wall time, CPU time of all processes, of the server's, and of the busiest worker."""

    wall: float
    cpu: float
    server: float
    busiest: float


def round_times(overrides: list[str], workers: int) -> tuple[Times, float]:
    """Return the median times of a round after the first, and the seconds before the first exchange."""
    config = compose(["strategy.stop_when_stable=false", *overrides])
    task = build_task(config)
    strategy, models, settings = (
        build_strategy(config, task),
        build_models(config, task),
        message_settings(config, task),
    )
    marks: list[tuple[float, ...]] = []
    begin = time.perf_counter()
    with _grid(config.num_clients, workers) as grid:
        if isinstance(grid, WorkerGrid):
            grid.share(task)
            while not all(worker.is_ready for worker in grid.pool.workers):
                grid.wait_for_replies(1.0)
        start = time.perf_counter() - begin
        strategy.start(
            grid,
            models,
            num_rounds=config.num_rounds,
            train_config=settings,
            on_round=lambda *_: marks.append(_mark(grid)),
        )
    rounds = []
    for before, after in pairwise(marks):
        wall, server, *each = (b - a for a, b in zip(before, after, strict=True))
        rounds.append(Times(wall, server + sum(each), server, max(each, default=0.0)))
    return Times(*map(statistics.median, zip(*rounds, strict=True))), start


def _grid(num_clients: int, workers: int) -> "closing[WorkerGrid] | nullcontext[LocalGrid]":
    if workers > 1:
        return closing(WorkerGrid(client_side, num_clients, None, workers))
    side = client_side()
    return nullcontext(LocalGrid(side.app, num_clients, None, side.in_blocks))


def _mark(grid: LocalGrid) -> tuple[float, ...]:
    own = [worker.cpu_seconds for worker in grid.pool.workers] if isinstance(grid, WorkerGrid) else []
    return time.perf_counter(), time.process_time(), *own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    cases = {"1,000 digits clients": ["num_clients=1000"]}
    if given.data_dir:
        folder = Path(given.data_dir).absolute()
        cases["MNIST label skew 1"] = ["experiment=clove/mnist_label_skew_1", f"data_dir={folder}"]
    start_fork_server()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'case':22}{'workers':>8}{'wall s':>9}{'CPU s':>8}{'server':>8}{'busiest':>9}{'start s':>9}")
    rows: dict[str, dict[str, object]] = {}
    for name, overrides in cases.items():
        found: dict[int, list[tuple[Times, float]]] = {1: [], 2: []}
        for _ in range(given.repeats):
            for workers, times in found.items():
                times.append(round_times([*overrides, f"num_rounds={given.rounds}"], workers))
        row: dict[str, object] = {}
        for workers, times in found.items():
            middle = Times(*map(statistics.median, zip(*(time for time, _ in times), strict=True)))
            start = statistics.median(start for _, start in times)
            row[str(workers)] = {**middle._asdict(), "start": start}
            figures = f"{middle.wall:9.3f}{middle.cpu:8.3f}{middle.server:8.3f}{middle.busiest:9.3f}{start:9.2f}"
            print(f"{name:22}{workers:8}{figures}", flush=True)
        one, two = (statistics.median(times.wall for times, _ in found[workers]) for workers in found)
        print(f"{'':22}{'1 / 2':>8}{one / two:9.2f}", flush=True)
        rows[name] = row
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
