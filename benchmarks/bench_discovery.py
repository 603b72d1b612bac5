"""Discovery on digits: right numbers of groups, false groups, other rules, what is sent, server time.

Run: ``python benchmarks/bench_discovery.py`` for a look, ``python benchmarks/bench_discovery.py groups --seeds
40 --first 1000`` for a table: no_groups, groups, unequal, skewed, few_sites or sampled (the cells of
`discovery_cells`), losses, rules, placing, work, time. ``--steps 16 --weights 0.5 --upload signs`` and the like
change the recipe. ``presets`` runs the rows of `florets reproduce discovery/recovery` up to the decision, with the
project's own code alone: ``--data-dir DIR`` for MNIST, ``--keys strategy.fold_upload=signs`` for other settings.
``losses`` asks the same of loss vectors of later rounds. CPU seconds on one thread.
"""

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.discovery_cells import TABLES, Cell, Kind
from benchmarks.discovery_federations import Recipe, federation, fold_changes, plan_of, sent
from benchmarks.discovery_losses import loss_folds
from benchmarks.discovery_presets import presets
from benchmarks.discovery_work import work
from benchmarks.rival_rules import RULES
from florets.strategies.core.folds import Groups, discover
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.placement import centres, place, unit_mean


def rows_of(cell: Cell, recipe: Recipe, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the clients that have samples enough, their true groups, and whether the test has them."""
    clients, truth = federation(cell, np.random.default_rng([seed, 0]))
    plan = plan_of(clients, recipe)
    changes, enough = fold_changes(clients, plan, recipe, seed)
    tested = np.array([len(clients[i][1]) >= plan.samples for i in enough])
    return sent(changes, recipe, seed), truth[enough], tested


def is_right(found: Groups, truth: np.ndarray) -> bool:
    number = len(set(truth.tolist()))
    if number == 1:
        return found.verdict == "none"
    if number > max(len(truth) / 2, 2) or number == len(truth):
        return found.verdict == "all_differ"
    return found.verdict == "groups" and found.k == number


def cells(table: str, recipe: Recipe, first: int, seeds: int, only: str, permutations: int) -> None:
    print(f"{table}, {recipe}, seeds {first} to {first + seeds - 1}, {permutations} permutations")
    for name, cell in TABLES[table].items():
        if only and only not in name:
            continue
        begin = time.process_time()
        right, agreement, known, p_values, answers = [], [], [], [], Counter()
        for seed in range(first, first + seeds):
            rows, truth, tested = rows_of(cell, recipe, seed)
            # With no permutation the p value is 1: at a level of 1, only the choice of K is seen.
            level = 0.005 if permutations else 1.0
            rng = np.random.default_rng([seed, 4])
            found = discover(rows, None, level=level, permutations=permutations, rng=rng, tested=tested)
            right.append(is_right(found, truth))
            agreement.append(adjusted_rand_index(truth.tolist(), found.labels.tolist()))
            given = discover(rows, len(set(truth.tolist())), rng=np.random.default_rng([seed, 4]))
            known.append(adjusted_rand_index(truth.tolist(), given.labels.tolist()))
            p_values.append(found.p_value)
            answers[{"none": "none", "all_differ": "all"}.get(found.verdict, str(found.k))] += 1
        p = np.array(p_values)
        said = " ".join(f"{answer}:{count}" for answer, count in answers.most_common(6))
        print(
            f"{name:34} right {np.mean(right):6.3f}  ARI {np.mean(agreement):5.2f}  K given {np.mean(known):5.2f}  "
            f"p<=.005 {np.mean(p <= 0.005):5.3f} p<=.05 {np.mean(p <= 0.05):5.3f}  {said}  "
            f"{(time.process_time() - begin) / seeds:.2f} s",
            flush=True,
        )


def rules(recipe: Recipe, first: int, seeds: int, only: str) -> None:
    warnings.filterwarnings("ignore")  # k-means warns where it finds fewer clusters than asked for
    print(f"rules on equal rows, {recipe}, seeds {first} to {first + seeds - 1}: fraction with the right number")
    names = [
        "8 clients x 60",
        "20 clients x 60",
        "60 clients x 30",
        "4 rotations, 5 each",
        "4 rotations, 15 each x 30",
    ]
    names += [
        "3 label shifts, 7, 7, 6",
        "8 rotations and mirrors, 3 each",
        "4 concepts, 5 each",
        "10, 4, 4, 2",
        "58 + 2",
    ]
    names += ["4 rotations, alpha 3", "3 + 2"]
    everything = {name: cell for table in TABLES.values() for name, cell in table.items()}
    print(f"{'':34}" + "".join(f"{rule:>21}" for rule in ["discovery", *RULES]))
    for name in names:
        if only and only not in name:
            continue
        right = np.zeros(1 + len(RULES))
        for seed in range(first, first + seeds):
            rows, truth, tested = rows_of(everything[name], recipe, seed)
            found = discover(rows, None, rng=np.random.default_rng([seed, 4]), tested=tested)
            right[0] += is_right(found, truth)
            means, number = unit_mean(rows), len(set(truth.tolist()))
            for column, rule in enumerate(RULES.values(), start=1):
                k_max = max(2, min(10, len(rows) // 2))
                right[column] += rule(means, k_max, np.random.default_rng([seed, 5])) == number
        print(f"{name:34}" + "".join(f"{share:21.2f}" for share in right / seeds), flush=True)


def placing(recipe: Recipe, first: int, seeds: int) -> None:
    """Later clients of the 4 rotations, and strangers whose labels are shifted as well."""
    cell = TABLES["groups"]["4 rotations, 5 each"]
    print(f"placing later clients, {recipe}, seeds {first} to {first + seeds - 1}")
    for samples in (60, 30, 15):
        counts = Counter()
        for seed in range(first, first + seeds):
            clients, truth = federation(cell, np.random.default_rng([seed, 0]))
            plan = plan_of(clients, recipe)
            changes, _ = fold_changes(clients, plan, recipe, seed)
            groups = centres(sent(changes, recipe, seed), truth)
            kinds = [*((kind, 2) for kind, _ in cell.groups), (Kind(shift=3), 4), (Kind(mirror=True), 4)]
            late, group = federation(Cell(tuple(kinds), samples), np.random.default_rng([seed, 6]))
            few = Recipe(**{**vars(recipe), "folds": 1, "size": min(samples, plan.samples), "steps": plan.steps})
            changes, _ = fold_changes(late, plan_of(late, few), few, seed)
            for row, true in zip(sent(changes, few, seed), group, strict=True):
                placed = place(row, groups)[0]
                sort = "member" if true < 4 else {4: "shifted", 5: "mirrored"}[int(true)]
                counts[sort, "none" if placed < 0 else "own" if placed == true else "other"] += 1
        for sort in ("member", "shifted", "mirrored"):
            of_sort = {answer: counts[sort, answer] for answer in ("own", "other", "none")}
            total = sum(of_sort.values())
            print(f"{samples:3} samples, {sort:9}" + "".join(f" {a} {n / total:5.2f}" for a, n in of_sort.items()))


def server_time(sizes: list[int]) -> None:
    print("server: seconds of discover() on random rows (M, 4, 1024) of 4 groups, and without groups")
    for number in sizes:
        rng = np.random.default_rng(0)
        for signal in (0.5, 0.0):
            centre = signal * rng.standard_normal((4, 1024))
            rows = np.repeat(centre, number // 4, axis=0)[:, None] + rng.standard_normal((number, 4, 1024))
            rows = rows.astype(np.float16)
            begin, wall = time.process_time(), time.perf_counter()
            found = discover(rows, None, rng=rng)
            spent = time.process_time() - begin
            print(
                f"{number:7} clients {found.verdict:7} {found.k:2} groups {spent:8.1f} s CPU, "
                f"{time.perf_counter() - wall:8.1f} s wall",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "table", nargs="?", choices=[*TABLES, "presets", "losses", "rules", "placing", "work", "time"]
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    parser.add_argument("--data-dir", default="", help="of presets and work: torchvision data folder with MNIST")
    parser.add_argument("--keys", nargs="*", default=[], help="of presets: key=value as on the command line")
    parser.add_argument("--models", type=int, default=8, help="of losses: models of CLoVE")
    parser.add_argument("--rounds", type=int, nargs="+", default=[2, 4, 8], help="of losses: rounds to look in")
    parser.add_argument("--clients", type=int, nargs="+", default=[200, 1000, 10_000])
    parser.add_argument("--permutations", type=int, default=399, help="0: no test, the best K is taken")
    plain = Recipe()
    for name, value in vars(plain).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int if name == "width" else type(value), default=value
        )
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = Recipe(**{name: getattr(given, name) for name in vars(plain)})
    if given.table is None:
        cells("no_groups", recipe, given.first, 5, "20 clients x 60", 199)
        cells("groups", recipe, given.first, 5, "rotations, 10", 199)
    elif given.table == "presets":
        extra = dict(text.split("=", 1) for text in given.keys)
        presets(given.first, given.seeds, given.only, given.data_dir, extra)
    elif given.table == "losses":
        loss_folds(given.first, given.seeds, given.only, given.models, given.rounds)
    elif given.table == "rules":
        rules(recipe, given.first, given.seeds, given.only)
    elif given.table == "placing":
        placing(recipe, given.first, given.seeds)
    elif given.table == "work":
        work(given.data_dir, given.seeds, given.only)
    elif given.table == "time":
        server_time(given.clients)
    else:
        cells(given.table, recipe, given.first, given.seeds, given.only, given.permutations)


if __name__ == "__main__":
    main()
