"""Discovery on digits: right numbers of groups, and false groups.

Run: ``python -m benchmarks.bench_discovery`` for a look, ``python -m benchmarks.bench_discovery groups --seeds 40
--first 1000`` for a table: no_groups, groups, unequal, skewed or few_sites; or ``private`` for central differential
privacy. CPU seconds on one thread.
"""

import argparse
import math
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from benchmarks import discovery_federations
from florets.strategies.core.accountant import level_of
from florets.strategies.core.folds import Groups, discover
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.noised_groups import PARTS, Release, differ, noised_groups
from florets.strategies.shared.fold_plan import NOISED_WIDTH, FoldPlan

Cell, Rows = discovery_federations.Cell, tuple[np.ndarray, np.ndarray, np.ndarray]


def rows_of(cell: Cell, seed: int, private: bool = False) -> Rows:
    """Return rows of the clients with samples enough, their true groups, and the classes of their folds' sizes."""
    clients, truth = discovery_federations.federation(cell, np.random.default_rng([seed, 0]))
    plan = FoldPlan.of([len(y) for _, y in clients], tests=True)
    plan = replace(plan, folds=2, size=30, steps=4) if private else plan
    changes, enough = discovery_federations.fold_changes(clients, plan, seed)
    classes = np.array([plan.class_of(plan.size_of(len(clients[i][1]))) for i in enough])
    return discovery_federations.sent(changes, NOISED_WIDTH if private else None, seed), truth[enough], classes


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


EPSILONS = (1.0, 2.0, 4.0, 8.0, np.inf)
GROUPING = 0.2
FEDERATIONS = 4
"""Of each kind, with fresh noise in each draw."""


def private(first: int, draws: int) -> None:
    """Discovery with noise: how often groups are found, the right number, ARI, and estimated against true errors.

    Of identical clients each draw is another federation of simulated rows, with as much in common as those of digits.
    """
    print(f"{GROUPING:g} of the budget, delta 1 / (10 clients), seeds from {first}, {draws} draws")
    width = NOISED_WIDTH
    for clients in (20, 100, 1000):
        cells = {
            "identical": None,
            "4 rotations": Cell(discovery_federations.rotations([clients // 4] * 4)),
            "2 rotations": Cell(discovery_federations.rotations([clients // 2] * 2)),
            "5 label pairs": Cell(discovery_federations.pairs(5, clients // 5)),
        }
        for name, cell in cells.items():
            held = [rows_of(cell, first + seed, private=True)[:2] for seed in range(FEDERATIONS)] if cell else []
            for place, epsilon in enumerate(EPSILONS):
                level = math.sqrt(GROUPING) * level_of(epsilon, 0.1 / clients) if epsilon < np.inf else np.inf
                begin, found = time.process_time(), []
                for draw in range(draws):
                    # Other rows and noise for each epsilon where false alarms are counted.
                    rng = np.random.default_rng([first, draw, 6] if held else [first, draw, 6, place])
                    if not held:
                        rows = 0.4 * np.eye(width)[0] + rng.normal(0, 0.9 / np.sqrt(width), (clients, 2, width))
                        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
                        rejected = differ(rows, 0.005, rng, Release.of(np.sqrt(PARTS) / level, rng))[0]
                        found.append((rejected, not rejected, np.nan, np.nan, np.nan))
                        continue
                    rows, truth = held[draw % FEDERATIONS]
                    groups = noised_groups(rows, None, 0.005, rng, Release.of(np.sqrt(PARTS) / level, rng))
                    right = groups.k == int(truth.max()) + 1
                    agreement = adjusted_rand_index(truth.tolist(), groups.labels.tolist())
                    errors = (groups.error, misplaced(truth, groups.labels)) if right else (np.nan, np.nan)
                    found.append((groups.k > 1, right, agreement, *errors))
                power, right, agreement, estimated, true = (
                    float(np.mean(kept)) if len(kept := [x for x in column if not np.isnan(x)]) else np.nan
                    for column in zip(*found, strict=True)
                )
                print(
                    f"{clients:5} clients, {name:13} epsilon {epsilon:3g}  groups {power:.3f}  right K {right:.2f}  "
                    f"ARI {agreement:5.2f}  misplaced, estimated {estimated:6.3f}, true {true:6.3f}  "
                    f"{(time.process_time() - begin) / draws:.3f} s",
                    flush=True,
                )


def misplaced(truth: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of clients in a wrong group, groups matched one to one."""
    table = np.zeros((int(max(truth.max(), labels.max())) + 1,) * 2)
    np.add.at(table, (truth, labels), 1)
    return 1 - float(table[linear_sum_assignment(-table)].sum()) / len(truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=[*discovery_federations.TABLES, "private"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.table is None:
        cells("no_groups", given.first, 5, "20 clients x 60")
        cells("groups", given.first, 5, "rotations, 10")
    elif given.table == "private":
        private(given.first, given.seeds)
    else:
        cells(given.table, given.first, given.seeds, given.only)


if __name__ == "__main__":
    main()
