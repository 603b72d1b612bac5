"""Seconds of a round on each engine in the number of clients, and where a deployed run's seconds per exchange go.

``python -m benchmarks.bench_engines [engines deployed] [--clients 10 100 1000] [--keys key=value ...]``

- ``engines``: digits clients, clustering rounds of CLoVE with test, each by the command in a process of its own: in
  process, with two workers, and, where Ray is installed, on a Ray cluster of two nodes of one CPU on this machine and
  by Flower's simulation with a SuperLink of its own. Shown are the median seconds of a round after the first, and all
  the others that the command took: starts, imports, introductions, the report.
- ``deployed``: four SuperNodes with data of their own on this machine; `exchange_parts` says what they are.

Wall times, which other processes on the machine lengthen: compare rows of one table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path

from benchmarks import bench_speed
from benchmarks.measuring import ROOT, in_own_process
from florets.conf.extras import PROJECT
from florets.deploy.demo import EXPERIMENT, exchanges_of, follow, wait_online
from florets.deploy.demo_data import write_folders
from florets.deploy.federation import Federation
from florets.reports.folder import MARKER
from florets.reports.summary import read_lines
from florets.task.temporary import held_folder

_RECEIVED, _SENT = "Receiving:", "Sent successfully"
_LOOK_SECONDS = 0.05


class LogWatch(threading.Thread):
    """Notes when each node's log says that a message has come, and that a reply has gone."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(daemon=True)
        self._federation = federation
        self._over = threading.Event()
        self.times: dict[str, dict[str, list[float]]] = {
            name: {_RECEIVED: [], _SENT: []} for name in federation.nodes
        }

    def run(self) -> None:
        """Look until `end`."""
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for name, times in self.times.items():
                log = self._federation.log(name)
                for words, found in times.items():
                    found += [now] * (log.count(words) - len(found))

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def exchange_parts(rounds: int) -> dict[str, float]:
    """Run CLoVE on four SuperNodes; return the median seconds of an exchange and of its parts, by name."""
    with held_folder("deploy") as root:
        clusters = write_folders(root / "data")
        with Federation(root / "federation") as federation:
            federation.add({name: {"data-dir": str(root / "data" / name)} for name in clusters})
            wait_online(federation, len(clusters))
            watch = LogWatch(federation)
            watch.start()
            overrides = f"strategy=clove k=2 strategy.stop_when_stable=false num_rounds={rounds}"
            settings = {"experiment": EXPERIMENT, "overrides": overrides, "results-dir": str(root / "results")}
            lines = read_lines(follow(federation, federation.run(PROJECT, settings), root / "results"))
            watch.end()
    replies = sum(line["replies"]["ok"] for line in lines)
    imports = {
        module: in_own_process(bench_speed.__file__, "imported", module)["seconds"]
        for module in ("flwr.app", "florets.client_app.app")
    }
    return {
        "an exchange": statistics.median(line["seconds"]["total"] / exchanges_of(line) for line in lines),
        **_node_parts(watch.times),
        "  of that the client's own work, as it says": sum(line["client_seconds"] for line in lines) / replies,
        "  of that imports alone (CPU, measured by itself)": imports["florets.client_app.app"],
        "    of those Flower's": imports["flwr.app"],
    }


def _node_parts(times: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the medians over nodes and messages, without the first message, which meets a node at rest."""
    at_node, between = list[float](), list[float]()
    for found in times.values():
        pairs = list(zip(found[_RECEIVED], found[_SENT], strict=False))
        at_node += [sent - received for received, sent in pairs[1:]]
        between += [after[0] - before[1] for before, after in pairwise(pairs[1:])]
    return {
        "reply sent to next message: pauses, server, other nodes": statistics.median(between),
        "message received to reply sent: executor, process, client": statistics.median(at_node),
    }


TABLES = ("engines", "deployed")
ONE, TWO, RAY, FLWR = "1 process", "2 workers", "Ray, 2 nodes", "Flower's simulation"
Row = dict[str, float]
PATIENCE = 1200.0
"""Seconds for the introductions: Flower's simulation sends a thousand messages for them."""


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


def engines(address: str) -> dict[str, list[str]]:
    """Return each engine's overrides; `address` is a Ray cluster's, empty where there is none."""
    found = {ONE: [], TWO: ["workers=2"]}
    if not address:
        return found
    return {**found, RAY: ["engine=ray", f"ray_address={address}"], FLWR: ["engine=flwr"]}


def command(overrides: list[str], num_clients: int, rounds: int) -> Row | None:
    """Run the command; return the median seconds of a round after the first, and all seconds that are in no round.

    None, and why on the screen, where the run does not come to its end.
    """
    keys = [
        f"num_clients={num_clients}", f"num_rounds={rounds}", "strategy.stop_when_stable=false", "quiet=true",
        "pictures=false", "loss_matrix=false", f"start_timeout={PATIENCE}",
    ]  # fmt: skip
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-m", "florets", *keys, *overrides, f"results_dir={folder}"]
        told = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
        if told.returncode:
            print((told.stderr or told.stdout).strip()[-500:], file=sys.stderr)
            return None
        whole = time.perf_counter() - begin
        seconds = [
            line["seconds"]["total"] for file in Path(folder).rglob(MARKER) for line in read_lines(file.parent)
        ]
    return {"round": statistics.median(seconds[1:]), "others": whole - sum(seconds)}


def compared(clients: list[int], keys: list[str], rounds: int, repeats: int) -> dict[str, dict[str, Row]]:
    """Print and return the medians of each engine, by number of clients; the engines take turns."""
    found: dict[str, dict[str, Row]] = {}
    with ray_nodes() as address:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'clients':9}{'engine':22}{'round s':>9}{'1 / it':>8}{'others s':>10}")
        for number in clients:
            cases = engines(address)
            times: dict[str, list[Row]] = {name: [] for name in cases}
            for _, (name, overrides) in product(range(repeats), cases.items()):
                if (row := command([*overrides, *keys], number, rounds)) is not None:
                    times[name].append(row)
            found[f"{number:,}"] = rows = {
                name: {what: statistics.median(row[what] for row in own) for what in own[0]}
                for name, own in times.items()
                if own
            }
            for name, row in rows.items():
                ratio = rows[ONE]["round"] / row["round"] if ONE in rows else float("nan")
                print(f"{number:<9,}{name:22}{row['round']:9.3f}{ratio:8.2f}{row['others']:10.1f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all where none is named")
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--keys", nargs="*", default=[], help="key=value of the runs of the first table")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    tables = given.tables or TABLES
    found: dict[str, object] = {}
    if "engines" in tables:
        found["engines"] = compared(given.clients, given.keys, given.rounds, given.repeats)
    if "deployed" in tables:
        found["deployed"] = parts = exchange_parts(given.rounds)
        print(f"\n{'a deployed exchange, 4 nodes':60}{'s':>8}")
        for name, seconds in parts.items():
            print(f"{name:60}{seconds:8.2f}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
