"""Discovery on digits: right numbers of groups, and false groups.

Run: ``python -m benchmarks.bench_discovery`` for a look, ``python -m benchmarks.bench_discovery groups --seeds 40
--first 1000`` for a table: no_groups, groups, unequal, skewed, few_sites or structure; or
``private`` for differential privacy. ``--steps 16 --width 512`` and the like change the recipe. CPU seconds on one
thread.
"""

import argparse
import math
import time
from collections import Counter

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from benchmarks import discovery_federations
from florets.strategies.core.accountant import level_of
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import centred_rows
from florets.strategies.core.folds import Groups, discover
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.noised_groups import PARTS, Release, differ, noised_groups
from florets.strategies.core.subgroups import Node, spread, tree_of
from florets.strategies.shared.fold_plan import NOISED_WIDTH, OWN_NOISE_WIDTH


def rows_of(
    cell: discovery_federations.Cell, recipe: discovery_federations.Recipe, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the clients that have samples enough, their true groups, and the classes of their folds' sizes."""
    clients, truth = discovery_federations.federation(cell, np.random.default_rng([seed, 0]))
    plan = discovery_federations.plan_of(clients, recipe)
    changes, enough = discovery_federations.fold_changes(clients, plan, seed)
    classes = np.array([plan.class_of(plan.size_of(len(clients[i][1]))) for i in enough])
    return discovery_federations.sent(changes, recipe, seed), truth[enough], classes


def is_right(found: Groups, truth: np.ndarray) -> bool:
    number = len(set(truth.tolist()))
    if number == 1:
        return found.verdict == "none"
    if number > max(len(truth) / 2, 2) or number == len(truth):
        return found.verdict == "all_differ"
    return found.verdict == "groups" and found.k == number


def structure(rows: np.ndarray, found: Groups, tested: np.ndarray, seed: int) -> str:
    """Whether groups are sharp, and the tree of groups within groups."""
    if found.verdict != "groups" or not (labels := canonical(found.labels[tested])).any():
        return ""
    rng = np.random.default_rng([seed, 5])
    if not spread(centred_rows(rows[tested]), labels, rng).is_sharp:
        return "not sharp"

    def shown(node: Node) -> str:
        return f"({' '.join(map(shown, node.parts))})" if node.parts else str(len(node.members))

    tree = tree_of(rows, found.labels, found.p_value, 0.005, rng, tested)
    return shown(tree) if tree.depth > 1 else "one level"


def cells(
    table: str, recipe: discovery_federations.Recipe, first: int, seeds: int, only: str, permutations: int
) -> None:
    print(f"{table}, {recipe}, seeds {first} to {first + seeds - 1}, {permutations} permutations")
    for name, cell in discovery_federations.TABLES[table].items():
        if only and only not in name:
            continue
        begin = time.process_time()
        right, agreement, known, p_values = [], [], [], []
        answers, shapes = Counter(), Counter()
        for seed in range(first, first + seeds):
            rows, truth, classes = rows_of(cell, recipe, seed)
            # With no permutation the p value is 1: at a level of 1, only the choice of K is seen.
            level = 0.005 if permutations else 1.0
            rng = np.random.default_rng([seed, 4])
            sizes = {"tested": classes == 0, "classes": classes}
            found = discover(rows, None, level=level, permutations=permutations, rng=rng, **sizes)
            right.append(is_right(found, truth))
            agreement.append(adjusted_rand_index(truth.tolist(), found.labels.tolist()))
            given = discover(rows, len(set(truth.tolist())), rng=np.random.default_rng([seed, 4]))
            known.append(adjusted_rand_index(truth.tolist(), given.labels.tolist()))
            p_values.append(found.p_value)
            shapes[structure(rows, found, classes == 0, seed)] += 1
            answers[{"none": "none", "all_differ": "all"}.get(found.verdict, str(found.k))] += 1
        p = np.array(p_values)
        said = " ".join(f"{answer}:{count}" for answer, count in answers.most_common(6))
        print(
            f"{name:34} right {np.mean(right):6.3f}  ARI {np.mean(agreement):5.2f}  K given {np.mean(known):5.2f}  "
            f"p<=.005 {np.mean(p <= 0.005):5.3f} p<=.05 {np.mean(p <= 0.05):5.3f}  {said}  {dict(shapes)}  "
            f"{(time.process_time() - begin) / seeds:.2f} s",
            flush=True,
        )


EPSILONS = (1.0, 2.0, 4.0, 8.0, np.inf)
FEDERATIONS = 4
"""Of each kind, with fresh noise in each draw."""


def private(first: int, draws: int, kind: str, grouping: float, only: str) -> None:
    """Discovery with noise: how often groups are found, the right number, ARI, and estimated against true errors.

    Of identical clients each draw is another federation of simulated rows, with as much in common as those of digits.
    """
    print(
        f"privacy.kind={kind}, {grouping:g} of the budget, delta 1 / (10 clients), seeds from {first}, {draws} draws"
    )
    width = NOISED_WIDTH if kind == "central" else OWN_NOISE_WIDTH
    recipe = discovery_federations.Recipe(folds=2, size=30, steps=4, width=width)
    for clients in (20, 100, 1000):
        cells = {
            "identical": None,
            "4 rotations": discovery_federations.Cell(discovery_federations.rotations([clients // 4] * 4)),
            "2 rotations": discovery_federations.Cell(discovery_federations.rotations([clients // 2] * 2)),
            "5 label pairs": discovery_federations.Cell(discovery_federations.pairs(5, clients // 5)),
        }
        for name, cell in cells.items():
            if only and only not in f"{name}, {clients} clients":
                continue
            held = [rows_of(cell, recipe, first + seed)[:2] for seed in range(FEDERATIONS)] if cell else []
            for place, epsilon in enumerate(EPSILONS):
                level = math.sqrt(grouping) * level_of(epsilon, 0.1 / clients) if epsilon < np.inf else np.inf
                begin, found = time.process_time(), []
                for draw in range(draws):
                    # Other rows and noise for each epsilon where false alarms are counted.
                    rng = np.random.default_rng([first, draw, 6] if held else [first, draw, 6, place])
                    if not held:
                        rows = 0.4 * np.eye(width)[0] + rng.normal(0, 0.9 / np.sqrt(width), (clients, 2, width))
                        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
                        given, release = _noised(rows, level, kind, rng)
                        rejected = differ(given, 0.005, rng, release)[0]
                        found.append((rejected, not rejected, np.nan, np.nan, np.nan))
                        continue
                    rows, truth = held[draw % FEDERATIONS]
                    given, release = _noised(rows, level, kind, rng)
                    groups = noised_groups(given, None, 0.005, rng, release)
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


def _noised(rows: np.ndarray, level: float, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, Release | None]:
    """Rows as they are sent, and how sums of them are released, where the search as a whole has this noise level."""
    if kind == "local":
        return rows + rng.normal(0.0, np.sqrt(2) / level, rows.shape), None
    return rows, Release.of(np.sqrt(PARTS) / level, rng)


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
    parser.add_argument("--kind", default="central", choices=["central", "local"], help="of private")
    parser.add_argument("--grouping", type=float, default=0.2, help="of private: fraction of the budget")
    parser.add_argument("--permutations", type=int, default=399, help="0: no test, the best K is taken")
    plain = discovery_federations.Recipe()
    for name, value in vars(plain).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int if name == "width" else type(value), default=value
        )
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = discovery_federations.Recipe(**{name: getattr(given, name) for name in vars(plain)})
    if given.table is None:
        cells("no_groups", recipe, given.first, 5, "20 clients x 60", 199)
        cells("groups", recipe, given.first, 5, "rotations, 10", 199)
    elif given.table == "private":
        private(given.first, given.seeds, given.kind, given.grouping, given.only)
    else:
        cells(given.table, recipe, given.first, given.seeds, given.only, given.permutations)


if __name__ == "__main__":
    main()
