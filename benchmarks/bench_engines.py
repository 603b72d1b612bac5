"""Seconds of a round and memory on each engine in the number of clients.

``python -m benchmarks.bench_engines [--clients 10 100 1000] [--engines process workers flwr]
[--keys key=value ...]``

Digits clients, clustering rounds of CLoVE with test, each by the command in a process of its own: in process, with
two workers, and, where Ray is installed, by Flower's simulation with a SuperLink of its own. Shown are the median
seconds of a round after the first, all the others that the command took (starts, imports, introductions, the report),
and the resident size of its largest process.

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
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from benchmarks.measuring import ROOT
from florets.reports.folder import MARKER
from florets.reports.summary import read_lines

ENGINES = {"process": "1 process", "workers": "2 workers", "flwr": "Flower's simulation"}
Row = dict[str, float]
PATIENCE = 1200.0
"""Seconds for the introductions: Flower's simulation sends a thousand messages for them."""


def overrides_of(engines: list[str]) -> dict[str, list[str]]:
    """Return the overrides of each engine that is installed."""
    found = {"process": [], "workers": ["workers=2"]}
    if find_spec("ray") is not None:
        found["flwr"] = ["engine=flwr"]
    return {name: found[name] for name in engines if name in found}


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
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        if status:
            print(told.strip()[-500:], file=sys.stderr)
            return None
        whole = time.perf_counter() - begin
        seconds = [
            line["seconds"]["total"] for file in Path(folder).rglob(MARKER) for line in read_lines(file.parent)
        ]
    return {"round": statistics.median(seconds[1:]), "others": whole - sum(seconds), "MB": used.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--keys", nargs="*", default=[], help="key=value of the runs")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    found: dict[str, dict[str, Row]] = {}
    cases = overrides_of(given.engines)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'clients':9}{'engine':22}{'round s':>9}{'others s':>10}{'MB':>8}")
    for number in given.clients:
        times: dict[str, list[Row]] = {name: [] for name in cases}
        # The engines take turns.
        for _, (name, overrides) in product(range(given.repeats), cases.items()):
            if (row := command([*overrides, *given.keys], number, given.rounds)) is not None:
                times[name].append(row)
        found[f"{number:,}"] = rows = {
            ENGINES[name]: {what: statistics.median(row[what] for row in own) for what in own[0]}
            for name, own in times.items()
            if own
        }
        for name, row in rows.items():
            print(f"{number:<9,}{name:22}{row['round']:9.3f}{row['others']:10.1f}{row['MB']:8.0f}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
