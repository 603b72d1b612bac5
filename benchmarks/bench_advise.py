"""Right answers of `florets advise` on five hospitals' breast cancer data, by case, over seeds.

``python -m benchmarks.bench_advise [--seeds 10] [--first 0] [--cases homogeneous,labels,...] [key=value ...]``

A right answer is: no groups and FedAvg (homogeneous); the two groups by their rule, and a model for each (labels);
the two hospitals' unit, and no model per group (scales, units); no groups of at least two, FedAvg, and the one
hospital named whose records no model predicts (noisy); the two hospitals' inputs (shifted) or label shares
(prevalence), and no model per group.
"""

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path

from florets.deploy.demo_hospitals import CASES, write_folders
from florets.engines.engine import run_in
from florets.studies.advise.advice import Advice
from florets.studies.advise.methods import Question
from florets.studies.advise.study import answer

KEYS = ("target=diagnosis", "min_clients=5", "quiet=true", "pictures=false", "checkpoint_every=0")
THREE = ("hospital-a", "hospital-b", "hospital-c")
TWO = ("hospital-d", "hospital-e")
GROUPED = ("discovery", "group_intercept", "clove")
SHARED = ("fedavg", "standardised", "intercept")


def is_right(case: str, advice: Advice) -> bool:
    finding = advice.finding
    if case == "homogeneous":
        return finding.kind == "none" and advice.chosen == "fedavg" and not advice.evidence.reasons
    if case == "noisy":
        return finding.kind != "groups" and advice.own_is_low == ("hospital-e",) and advice.chosen in SHARED
    kinds = {reason.kind: reason for reason in advice.evidence.reasons}
    if case == "labels":
        return finding.groups == (THREE, TWO) and advice.chosen in GROUPED and kinds.keys() == {"rule"}
    kind = {"scales": "unit", "units": "unit", "shifted": "inputs", "prevalence": "labels"}[case]
    explained = kinds.keys() == {kind} and set(kinds[kind].sites) == set(TWO)
    return explained and advice.chosen in SHARED


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
                    f"(own model low: {list(advice.own_is_low)}), scale {advice.is_scale}, reasons "
                    f"{[(one.kind, *one.sites) for one in advice.evidence.reasons]}, advised {advice.chosen}; "
                    + ", ".join(
                        f"{one.name} {100 * advice.criterion.figure(one.test):.1f}" for one in advice.outcomes
                    ),
                    flush=True,
                )
        print(f"{case}: {right} of {given.seeds} right", flush=True)
    print(f"{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
