"""Seconds of a round on each engine in the number of clients, and where a deployed run's seconds per exchange go.

``python benchmarks/bench_engines.py [engines deployed] [--clients 10 100 1000] [--rounds 4] [--json FILE]``

- ``engines``: digits clients, clustering rounds of CLoVE with test, each by the command in a process of its own: in
  process, with two workers, and, where Ray is installed, on a Ray cluster of two nodes of one CPU on this machine and
  by Flower's simulation with a SuperLink of its own. Shown are the median seconds of a round after the first, and all
  the others that the command took: starts, imports, introductions, the report.
- ``deployed``: four SuperNodes with data of their own on this machine; see `benchmarks.deployed_exchange`.

Wall times, which other processes on the machine lengthen: compare rows of one table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.bench_workers import ray_nodes
from benchmarks.deployed_exchange import exchange_parts
from florets.deploy.demo import rounds_of
from florets.reports.folder import MARKER

ROOT = Path(__file__).resolve().parent.parent
TABLES = ("engines", "deployed")
ONE, TWO, RAY, FLWR = "1 process", "2 workers", "Ray, 2 nodes", "Flower's simulation"
Row = dict[str, float]
PATIENCE = 1200.0
"""Seconds for the introductions: Flower's simulation sends a thousand messages for them."""


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
        seconds = [line["seconds"]["total"] for file in Path(folder).rglob(MARKER) for line in rounds_of(file.parent)]
    return {"round": statistics.median(seconds[1:]), "others": whole - sum(seconds)}


def medians(rows: list[Row]) -> Row:
    """Return the median of each figure."""
    return {what: statistics.median(row[what] for row in rows) for what in rows[0]}


def compared(clients: list[int], rounds: int, repeats: int) -> dict[str, dict[str, Row]]:
    """Print and return the medians of each engine, by number of clients; the engines take turns."""
    found: dict[str, dict[str, Row]] = {}
    with ray_nodes() as address:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'clients':9}{'engine':22}{'round s':>9}{'1 / it':>8}{'others s':>10}")
        for number in clients:
            cases = engines(address)
            times: dict[str, list[Row]] = {name: [] for name in cases}
            for _, (name, overrides) in product(range(repeats), cases.items()):
                if (row := command(overrides, number, rounds)) is not None:
                    times[name].append(row)
            found[f"{number:,}"] = rows = {name: medians(own) for name, own in times.items() if own}
            for name, row in rows.items():
                ratio = rows[ONE]["round"] / row["round"] if ONE in rows else float("nan")
                print(f"{number:<9,}{name:22}{row['round']:9.3f}{ratio:8.2f}{row['others']:10.1f}", flush=True)
    return found


def deployed(rounds: int) -> Row:
    """Print and return the parts of a deployed exchange."""
    found = exchange_parts(rounds)
    print(f"\n{'a deployed exchange, 4 nodes':60}{'s':>8}")
    for name, seconds in found.items():
        print(f"{name:60}{seconds:8.2f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all where none is named")
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    tables = given.tables or TABLES
    found: dict[str, object] = {}
    if "engines" in tables:
        found["engines"] = compared(given.clients, given.rounds, given.repeats)
    if "deployed" in tables:
        found["deployed"] = deployed(given.rounds)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
