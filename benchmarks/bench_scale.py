"""Very many clients: seconds of a round and memory in their number, and the server's steps in the number of vectors.

``python -m benchmarks.bench_scale [rounds steps] [--clients 1000 10000 100000] [--strategies clove ifca fedavg]
[--participants 1000 10000] [--workers 1 2] [--json FILE]``

- ``rounds``: digits clients of 20 training samples each, which clients share; 1,000 of them in a round, and up to
  10,000. CLoVE (clustering rounds), IFCA or FedAvg, in blocks, with one process and with two. Each case is
  a process of its own; shown are seconds up to the end of the first round, the median seconds of the later ones
  (with a test of the participants, the recorder and a checkpoint), wall time and CPU time of the first process, and
  its largest resident size and that of its largest worker together.
- ``steps``: CPU seconds of one step each of the server's work on M vectors, as the strategies call it; those on all
  pairs of clients up to 5,000.

The figures are those of one machine at one time: compare rows of one table.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from benchmarks.measuring import in_own_process

TABLES = ("rounds", "steps")
PAIRS_UP_TO = 5000
STRATEGIES = {"clove": ["strategy.stop_when_stable=false"], "ifca": [], "fedavg": []}
ROUNDS = 4


def command(num_clients: int, participants: int, strategy: str, workers: int) -> dict[str, float]:
    """Run the command; return the seconds up to its second round, those of a later round, and the peak in MB."""
    from florets.commands.main import main
    from florets.server_app.recorder import Recorder

    marks: list[tuple[float, float]] = []
    note = Recorder.round

    def noted(*given: Any, **others: Any) -> Any:
        marks.append((time.perf_counter(), time.process_time()))
        return note(*given, **others)

    Recorder.round = noted  # type: ignore[method-assign]  # the moment at which a round has ended
    share = participants / num_clients
    options = "{angles: [0, 90, 180, 270], samples_per_client: 20, test_samples_per_client: 5, reuse: clients}"
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        code = main(
            [
                f"num_clients={num_clients}", f"strategy={strategy}", f"strategy.fraction_train={share!r}",
                "task.partition=composed", f"task.partition_options={options}", "eval_clients=participants",
                f"num_rounds={ROUNDS}", "batch_clients=auto", f"workers={workers}", "loss_matrix=false",
                "pictures=false", "quiet=true", f"results_dir={folder}", *STRATEGIES[strategy],
            ]
        )  # fmt: skip
    if code:
        sys.exit(code)
    rounds = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks)]
    wall, cpu = (statistics.median(times) for times in zip(*rounds, strict=True))
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"first": marks[0][0] - begin, "wall": wall, "cpu": cpu, "peak": peak / 1024}


def steps(num_vectors: int) -> dict[str, float]:
    """Return the CPU seconds of each of the server's steps on so many clients."""
    import numpy as np

    from florets.strategies.base.report import snapshot
    from florets.strategies.cfl_gp.profile import GradientProfile, spectral_features
    from florets.strategies.clove.strategy import Histories
    from florets.strategies.core.choose_k import choose_k
    from florets.strategies.core.cluster import cluster, match_min_cost, nearest_centroid
    from florets.strategies.core.folds import discover
    from florets.strategies.core.metrics import adjusted_rand_index

    rng = np.random.default_rng(0)
    truth = np.arange(num_vectors) % 10
    vectors = 2.0 - np.eye(10)[truth] + 0.2 * rng.standard_normal((num_vectors, 10))
    histories = Histories({str(client): [1, 2, 3] for client in range(num_vectors)})
    found: dict[str, Callable[[], object]] = {
        "k-means, K = 10": lambda: cluster(vectors, 10, "kmeans", np.random.default_rng(0)),
        "Ward, K = 10": lambda: cluster(vectors, 10, "agglomerative", np.random.default_rng(0)),
        "choose K by silhouette": lambda: choose_k(vectors, 10, "silhouette", 0.0, np.random.default_rng(0)),
        "match clusters to models": lambda: match_min_cost(vectors, truth),
        "nearest centroid": lambda: nearest_centroid(vectors, np.eye(10)),
        "ARI": lambda: adjusted_rand_index(truth.tolist(), truth.tolist()),
        "copy of CLoVE's state": lambda: snapshot(histories),
        "discovery, 4 folds of 256": lambda: _discovered(discover, num_vectors),
    }
    if num_vectors <= PAIRS_UP_TO:
        profile = GradientProfile.empty(1, 1000)
        profile.add_clients(num_vectors)
        rows, updates = np.arange(num_vectors), rng.standard_normal((num_vectors, 1000))
        found["CFL-GP, products of 1,000 entries"] = lambda: profile.refresh(0, rows, list(updates))
        found["CFL-GP, spectral step, K = 10"] = lambda: spectral_features(profile.gram(rows), 10)
    return {name: _seconds(step) for name, step in found.items()}


def _discovered(discover: Callable[..., object], num_vectors: int) -> object:
    import numpy as np

    rng = np.random.default_rng(0)
    folds = np.eye(10, 256)[np.arange(num_vectors) % 10][:, None] + rng.standard_normal((num_vectors, 4, 256))
    return discover(folds.astype(np.float32), None, rng=rng)


def _seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all where none is named")
    parser.add_argument("--clients", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--participants", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=["clove"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    if "rounds" in (given.tables or TABLES):
        found["rounds"] = {}
        print(f"{'participants, strategy, workers':36}{'first s':>10}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}")
        for num_clients in given.clients:
            sampled = [number for number in given.participants if number <= num_clients]
            for participants, strategy, workers in product(sampled, given.strategies, given.workers):
                case = f"{participants:,} of {num_clients:,}, {strategy}, {workers}"
                row = found["rounds"][case] = in_own_process(
                    __file__, "command", num_clients, participants, strategy, workers
                )
                print(
                    f"{case:36}{row['first']:10.1f}{row['wall']:9.2f}{row['cpu']:9.2f}{row['peak']:9.0f}", flush=True
                )
    if "steps" in (given.tables or TABLES):
        found["steps"] = {f"{number:,}": in_own_process(__file__, "steps", number) for number in given.clients}
        print(f"{'step, CPU seconds':36}" + "".join(f"{number:>12}" for number in found["steps"]))
        for name in next(iter(found["steps"].values())):
            cells = [found["steps"][number].get(name) for number in found["steps"]]
            print(f"{name:36}" + "".join(f"{'-' if cell is None else f'{cell:.3g}':>12}" for cell in cells))
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
