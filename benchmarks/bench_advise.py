"""Right answers of `florets advise` on five hospitals' breast cancer data, by case, over seeds.

``python -m benchmarks.bench_advise [--seeds 10] [--first 0] [--cases homogeneous,labels,...] [key=value ...]``

A right answer is: no groups and FedAvg (homogeneous); the two groups, and a model for each (labels); the two groups,
that the difference lies in the scale, and FedAvg on standardised inputs (scales); no groups of at least two, FedAvg,
and the one hospital named whose records no model predicts (noisy).
"""

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path

from florets.deploy.demo_hospitals import CASES, write_folders
from florets.server_app.advise.advice import Advice
from florets.server_app.advise.command import answer
from florets.server_app.advise.methods import Question
from florets.server_app.main import run_in

KEYS = (
    "experiment=own_data", "task.partition_options.input_shape=[30]", "task.partition_options.num_outputs=2",
    "min_clients=5", "quiet=true", "pictures=false", "checkpoint_every=0",
)  # fmt: skip
THREE = ("hospital-a", "hospital-b", "hospital-c")
TWO = ("hospital-d", "hospital-e")


def is_right(case: str, advice: Advice) -> bool:
    """Say whether an answer is the case's."""
    finding = advice.finding
    if case == "homogeneous":
        return finding.kind == "none" and advice.chosen == "fedavg"
    if case == "noisy":
        lone = finding.lone == advice.own_is_low == ("hospital-e",)
        return finding.kind in ("lone", "none") and lone and advice.chosen == "fedavg"
    if finding.groups != (THREE, TWO):
        return False
    if case == "labels":
        return advice.chosen == "discovery" and not advice.is_scale
    return advice.is_scale and advice.chosen == "standardised"


def ask(case: str, seed: int, root: Path, own: list[str]) -> Advice:
    data = root / case / str(seed)
    write_folders(data, case, seed)
    question = Question.of([*KEYS, f"data_dir={data}", f"results_dir={root / 'results'}", f"seed={seed}", *own])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return answer(question, run_in)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("keys", nargs="*", help="key=value for all runs")
    given = parser.parse_args()
    start = time.process_time()
    for case in given.cases.split(","):
        right = 0
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(given.first, given.first + given.seeds):
                advice = ask(case, seed, Path(folder), given.keys)
                good = is_right(case, advice)
                right += good
                finding = advice.finding
                word = "right" if good else "WRONG"
                print(
                    f"{case} seed {seed}: {word}: {finding.kind}, p = {finding.p_value}, groups "
                    f"of {[len(group) for group in finding.groups]}, lone {list(finding.lone)} "
                    f"(own model low: {list(advice.own_is_low)}), scale {advice.is_scale}, advised {advice.chosen}; "
                    + ", ".join(f"{one.name} {100 * one.mean:.1f}" for one in advice.outcomes),
                    flush=True,
                )
        print(f"{case}: {right} of {given.seeds} right", flush=True)
    print(f"{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
