"""Wall time and CPU seconds of a round with one process, with two workers and on Ray, in one run; medians.

Run: ``python benchmarks/bench_workers.py`` (1,000 clients of digits; ``--clients`` changes that), or with
``--data-dir DIR`` also MNIST label skew 1; clustering rounds of CLoVE with test, in turns: ``workers=1``,
``workers=2``, and, where Ray is installed, ``engine=ray`` with an actor on each of two nodes of one CPU. Beside the
wall time, which other processes lengthen, stand the CPU seconds of the server's process and of the busiest worker:
what a round takes on idle cores lies between the larger of them and their sum. Those of Ray's own processes are in
none of them and stand apart.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from florets.conf.compose import compose
from florets.engines.engine import client_side, start_fork_server
from florets.engines.local_grid import LocalGrid
from florets.engines.worker_grid import WorkerGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings


class Times(NamedTuple):
    """Seconds of a round: wall time, CPU time of server and workers, of the server, of the busiest worker, of Ray."""

    wall: float
    cpu: float
    server: float
    busiest: float
    ray: float


ONE, TWO, RAY = "1 process", "2 workers", "Ray, 2 nodes"


def round_times(overrides: list[str], engine: str) -> tuple[Times, float]:
    """Return the median times of a round after the first, and the seconds before the first exchange."""
    config = compose(["strategy.stop_when_stable=false", *overrides])
    task = build_task(config)
    strategy, models, settings = (
        build_strategy(config, task),
        build_models(config, task),
        message_settings(config, task),
    )
    marks: list[tuple[float, ...]] = []
    rays: list[Any] = []
    begin = time.perf_counter()
    with _grid(config.num_clients, engine) as grid:
        if isinstance(grid, WorkerGrid):
            grid.share(task)
            while not all(worker.is_ready for worker in grid.pool.workers):
                grid.wait_for_replies(1.0)
        if engine == RAY:
            rays = _ray_processes()
        start = time.perf_counter() - begin
        strategy.start(
            grid,
            models,
            num_rounds=config.num_rounds,
            train_config=settings,
            on_round=lambda *_: marks.append(_mark(grid, rays)),
        )
    rounds = []
    for before, after in pairwise(marks):
        wall, ray, server, *each = (b - a for a, b in zip(before, after, strict=True))
        rounds.append(Times(wall, server + sum(each), server, max(each, default=0.0), ray))
    return Times(*map(statistics.median, zip(*rounds, strict=True))), start


def _grid(num_clients: int, engine: str) -> "closing[WorkerGrid] | nullcontext[LocalGrid]":
    if engine == ONE:
        side = client_side()
        return nullcontext(LocalGrid(side.app, num_clients, None, side.in_blocks))
    backend = None
    if engine == RAY:
        from florets.engines.ray_workers import RayBackend

        backend = RayBackend(client_side, 300.0, "")
    return closing(WorkerGrid(client_side, num_clients, None, 2, backend))


def _mark(grid: LocalGrid, rays: list[Any]) -> tuple[float, ...]:
    own = [worker.cpu_seconds for worker in grid.pool.workers] if isinstance(grid, WorkerGrid) else []
    ray = sum(sum(process.cpu_times()[:2]) for process in rays)
    return time.perf_counter(), ray, time.process_time(), *own


def _ray_processes() -> list[Any]:
    """Return the processes of the cluster that are not its actors."""
    import psutil

    below = psutil.Process().children(recursive=True)
    ours = [process for process in below if "RayActor" not in process.name()]
    return [process for process in ours if process.name().startswith(("ray", "gcs_server"))]


@contextmanager
def ray_nodes() -> Iterator[str]:
    """Yield the address of a Ray cluster of two nodes on this machine, an empty one where Ray is not installed."""
    if find_spec("ray") is None:
        print("Ray is not installed: no row for it")
        yield ""
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


@contextmanager
def two_nodes() -> Iterator[list[str]]:
    """Connect to a Ray cluster of two nodes on this machine; yield the engines that there are then."""
    with ray_nodes() as address:
        if not address:
            yield [ONE, TWO]
            return
        from florets.engines.ray_cluster import connected

        with connected(address):
            yield [ONE, TWO, RAY]


def compared(name: str, overrides: list[str], engines: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Print and return the medians of a case, by engine."""
    found: dict[str, list[tuple[Times, float]]] = {engine: [] for engine in engines}
    for _ in range(repeats):
        for engine, times in found.items():
            times.append(round_times(overrides, engine))
    row: dict[str, dict[str, float]] = {}
    for engine, times in found.items():
        middle = Times(*map(statistics.median, zip(*(time for time, _ in times), strict=True)))
        start = statistics.median(start for _, start in times)
        row[engine] = {**middle._asdict(), "start": start}
        figures = f"{middle.wall:9.3f}{middle.cpu:8.3f}{middle.server:8.3f}{middle.busiest:9.3f}{middle.ray:7.3f}"
        print(f"{name:22}{engine:14}{figures}{start:9.2f}{row[ONE]['wall'] / middle.wall:8.2f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST")
    parser.add_argument("--clients", type=int, default=1000, help="clients of digits")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    cases = {f"{given.clients:,} digits clients": [f"num_clients={given.clients}"]}
    if given.data_dir:
        folder = Path(given.data_dir).absolute()
        cases["MNIST label skew 1"] = ["experiment=clove/mnist_label_skew_1", f"data_dir={folder}"]
    start_fork_server()
    with two_nodes() as engines:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        columns = f"{'wall s':>9}{'CPU s':>8}{'server':>8}{'busiest':>9}{'Ray':>7}{'start s':>9}{'1 / it':>8}"
        print(f"{'case':22}{'engine':14}{columns}")
        rows = {
            name: compared(name, [*overrides, f"num_rounds={given.rounds}"], engines, given.repeats)
            for name, overrides in cases.items()
        }
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
