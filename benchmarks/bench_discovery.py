"""Discovery on digits: right numbers of groups, and false groups.

Run: ``python -m benchmarks.bench_discovery`` for a look, ``python -m benchmarks.bench_discovery groups --seeds 40
--first 1000`` for a table: no_groups, groups, unequal, skewed or few_sites. CPU seconds on one thread.
"""

import argparse
import time
from collections import Counter

import numpy as np
import torch

from benchmarks import discovery_federations
from florets.strategies.core.folds import Groups, discover
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.shared.fold_plan import FoldPlan

Cell, Rows = discovery_federations.Cell, tuple[np.ndarray, np.ndarray, np.ndarray]


def rows_of(cell: Cell, seed: int) -> Rows:
    """Return rows of the clients with samples enough, their true groups, and the classes of their folds' sizes."""
    clients, truth = discovery_federations.federation(cell, np.random.default_rng([seed, 0]))
    plan = FoldPlan.of([len(y) for _, y in clients], tests=True)
    changes, enough = discovery_federations.fold_changes(clients, plan, seed)
    classes = np.array([plan.class_of(plan.size_of(len(clients[i][1]))) for i in enough])
    return discovery_federations.sent(changes, seed), truth[enough], classes


def is_right(found: Groups, truth: np.ndarray) -> bool:
    number = len(set(truth.tolist()))
    if number == 1:
        return found.verdict == "none"
    if number > max(len(truth) / 2, 2) or number == len(truth):
        return found.verdict == "all_differ"
    return found.verdict == "groups" and found.k == number


def cells(table: str, first: int, seeds: int, only: str = "") -> None:
    print(f"{table}, seeds {first} to {first + seeds - 1}")
    for name, cell in discovery_federations.TABLES[table].items():
        if only not in name:
            continue
        begin = time.process_time()
        right, agreement, known = [], [], []
        answers = Counter()
        for seed in range(first, first + seeds):
            rows, truth, classes = rows_of(cell, seed)
            found = discover(rows, None, rng=np.random.default_rng([seed, 4]), tested=classes == 0, classes=classes)
            right.append(is_right(found, truth))
            agreement.append(adjusted_rand_index(truth.tolist(), found.labels.tolist()))
            given = discover(rows, len(set(truth.tolist())), rng=np.random.default_rng([seed, 4]))
            known.append(adjusted_rand_index(truth.tolist(), given.labels.tolist()))
            answers[{"none": "none", "all_differ": "all"}.get(found.verdict, str(found.k))] += 1
        said = " ".join(f"{answer}:{count}" for answer, count in answers.most_common(6))
        print(
            f"{name:34} right {np.mean(right):6.3f}  ARI {np.mean(agreement):5.2f}  K given {np.mean(known):5.2f}  "
            f"{said}  {(time.process_time() - begin) / seeds:.2f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=list(discovery_federations.TABLES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.table is None:
        cells("no_groups", given.first, 5, "20 clients x 60")
        cells("groups", given.first, 5, "rotations, 10")
    else:
        cells(given.table, given.first, given.seeds, given.only)


if __name__ == "__main__":
    main()
