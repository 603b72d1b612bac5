"""CPU seconds of a round with each client's work by itself and with `batch_clients=auto`, in one run.

Run: ``python benchmarks/bench_batch.py``: 1,000 clients of digits (one or two samples each), the quickstart, and
MNIST label skew 1 where ``--data`` names its folder; clustering rounds with test. The runs take turns. Shown is the
median over them of each one's median round.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.timed_rounds import timed_rounds
from florets.conf.compose import compose
from florets.server_app.build import build_task
from florets.task.training.vectorised import block_size

CASES = {
    "1,000 clients": ["num_clients=1000", "num_rounds=3"],
    "quickstart": ["num_rounds=6"],
    "MNIST skew 1": ["experiment=clove/mnist_label_skew_1", "num_rounds=3"],
}


def round_seconds(overrides: list[str], size: int) -> float:
    """Return the median CPU seconds of a round after the first, in blocks of at most `size` clients."""
    config = compose(["strategy.stop_when_stable=false", *overrides])
    return statistics.median(timed_rounds(config, build_task(config), size)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--data", default="", help="folder of MNIST; without it that case is left out")
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    rows = {}
    print(f"{'case':16}{'block':>6}{'off, CPU s':>12}{'auto, CPU s':>13}{'off / auto':>12}")
    for name in given.cases:
        if name.startswith("MNIST") and not given.data:
            continue
        overrides = [*CASES[name], *([f"data_dir={given.data}"] if given.data else [])]
        size = block_size(build_task(compose(overrides)).build_model())
        times: dict[int, list[float]] = {1: [], size: []}
        for _ in range(given.repeats):
            for blocks, seconds in times.items():
                seconds.append(round_seconds(overrides, blocks))
        off, auto = (statistics.median(seconds) for seconds in times.values())
        rows[name] = {"block": size, "off": off, "auto": auto}
        print(f"{name:16}{size:6}{off:12.3f}{auto:13.3f}{off / auto:12.2f}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
