"""CPU seconds of a round of each strategy in process, test evaluation included; median over the rounds.

Run: ``python benchmarks/bench_round.py`` (digits), or with ``--data-dir DIR`` also MNIST label skew 1 (25 clients x
500 samples, 5 models of 5,142 parameters), where CLoVE keeps clustering so that every round costs its loss vectors.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import timed_rounds
from florets.conf.compose import compose
from florets.server_app.build import build_task


def rounds(overrides: list[str], num_rounds: int) -> tuple[float, dict[str, float]]:
    """Return the median CPU seconds of a round after the first, and the median wall seconds by part."""
    config = compose([*overrides, f"num_rounds={num_rounds}"])
    cpu, reports = timed_rounds(config, build_task(config))
    parts = sorted({part for report in reports[1:] for part in report.seconds})
    wall = {part: statistics.median(report.seconds.get(part, 0.0) for report in reports[1:]) for part in parts}
    return statistics.median(cpu), wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST")
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    experiments = [["experiment=quickstart"]]
    if given.data_dir:
        experiments.append(["experiment=clove/mnist_label_skew_1", f"data_dir={Path(given.data_dir).absolute()}"])
    print(f"{'experiment':28}{'strategy':10}{'CPU s a round':>14}   wall s by part")
    for experiment in experiments:
        for strategy in ("clove", "ifca", "fedavg", "local"):
            extra = ["strategy.stop_when_stable=false"] if strategy == "clove" else []
            cpu, wall = rounds([*experiment, f"strategy={strategy}", *extra], given.rounds)
            parts = "  ".join(f"{part} {seconds:.3f}" for part, seconds in wall.items())
            print(f"{experiment[0].partition('=')[2]:28}{strategy:10}{cpu:14.3f}   {parts}", flush=True)


if __name__ == "__main__":
    main()
