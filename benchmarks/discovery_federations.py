"""Federations of digits for the benchmark of discovery, and the rows that their clients would send.

Data, model (``mlp`` 64-32-10), plan of the folds, training on them and compression are the project's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch.nn import Module

from florets.strategies.shared.fold_plan import FoldPlan
from florets.task.registry import resolve
from florets.task.task import initial_models
from florets.task.training import folds as training_on_folds
from florets.task.training.settings import Training
from florets.task.wire.folds import RowForm

HIDDEN, CLASSES, PIXELS = 32, 10, 64
PARAMETERS = PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
Data = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """What a group's clients have: quarter turns, mirrored images, labels that are shifted modulo 10 or swapped.

    With `classes` there are these alone, in equal shares.
    """

    turns: int = 0
    mirror: bool = False
    shift: int = 0
    swaps: tuple[tuple[int, int], ...] = ()
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One sort of federation: kind and number of clients of each group, and the samples of each client.

    Two numbers of samples are the ends of a log-uniform draw. `alpha` and `group_alpha` are those of Dirichlet class
    shares, drawn for each client or for each group; 0: none.
    """

    groups: tuple[tuple[Kind, int], ...]
    samples: int | tuple[int, int] = 60
    alpha: float = 0.0
    group_alpha: float = 0.0


def rotations(sizes: Sequence[int]) -> tuple[tuple[Kind, int], ...]:
    if len(sizes) == 2:
        return tuple((Kind(turns=2 * k), n) for k, n in enumerate(sizes))
    return tuple((Kind(turns=k % 4, mirror=k >= 4), n) for k, n in enumerate(sizes))


def shifts(sizes: Sequence[int]) -> tuple[tuple[Kind, int], ...]:
    return tuple((Kind(shift=3 * k), n) for k, n in enumerate(sizes))


def pairs(number: int, each: int) -> tuple[tuple[Kind, int], ...]:
    return tuple((Kind(classes=(2 * k, 2 * k + 1)), each) for k in range(number))


def concepts(sizes: Sequence[int]) -> tuple[tuple[Kind, int], ...]:
    swaps = (((0, 3), (8, 9)), ((1, 4), (6, 9)), ((1, 2), (3, 6)), ((3, 5), (4, 7)))
    return tuple((Kind(swaps=swaps[k]), n) for k, n in enumerate(sizes))


def alike(number: int) -> tuple[tuple[Kind, int], ...]:
    return ((Kind(), number),)


def own(number: int) -> tuple[tuple[Kind, int], ...]:
    """Each client a group of its own."""
    return tuple((Kind(turns=k % 4, mirror=k % 8 >= 4, shift=3 * (k // 8)), 1) for k in range(number))


NO_GROUPS = {
    "8 clients x 60": Cell(alike(8)),
    "20 clients x 60": Cell(alike(20)),
    "60 clients x 30": Cell(alike(60), 30),
    "20 clients, 10 to 500": Cell(alike(20), (10, 500)),
    "5 clients x 96": Cell(alike(5), 96),
}
TWELVE_KINDS = tuple((Kind(turns=k % 4, mirror=k // 4 == 1, shift=3 * (k // 8)), 3) for k in range(12))
GROUPS = {
    "2 rotations, 10 + 10": Cell(rotations([10, 10])),
    "4 rotations, 5 each": Cell(rotations([5] * 4)),
    "4 rotations, 2 each": Cell(rotations([2] * 4)),
    "4 rotations, 15 each x 30": Cell(rotations([15] * 4), 30),
    "4 rotations, 50 each x 30": Cell(rotations([50] * 4), 30),
    "8 rotations and mirrors, 3 each": Cell(rotations([3] * 8)),
    "12 rotations, mirrors, shifts, 3 each": Cell(TWELVE_KINDS),
    "3 label shifts, 7, 7, 6": Cell(shifts([7, 7, 6])),
    "3 label shifts, 20 each x 30": Cell(shifts([20] * 3), 30),
    "5 label pairs, 4 each": Cell(pairs(5, 4)),
    "4 concepts, 5 each": Cell(concepts([5] * 4)),
    "3 class mixes (alpha 1), 7, 7, 6": Cell((*alike(7), *alike(7), *alike(6)), group_alpha=1.0),
    "sizes 10 to 500: 4 rotations": Cell(rotations([5] * 4), (10, 500)),
    "sizes 10 to 500: 2 rotations": Cell(rotations([10, 10]), (10, 500)),
}
UNEQUAL = {
    "18 + 2": Cell(rotations([18, 2])),
    "10, 4, 4, 2": Cell(rotations([10, 4, 4, 2])),
    "14, 2, 2, 2": Cell(rotations([14, 2, 2, 2])),
    "10, 6, 3, 1": Cell(rotations([10, 6, 3, 1])),
    "17, 1, 1, 1": Cell(rotations([17, 1, 1, 1])),
    "19 + 1": Cell(rotations([19, 1])),
    "58 + 2": Cell(rotations([58, 2])),
    "59 + 1": Cell(rotations([59, 1])),
    "20 clients that all differ": Cell(own(20)),
}
SKEWED = {
    "4 rotations, alpha 10": Cell(rotations([5] * 4), alpha=10.0),
    "4 rotations, alpha 3": Cell(rotations([5] * 4), alpha=3.0),
    "4 rotations, alpha 1": Cell(rotations([5] * 4), alpha=1.0),
    "no groups, alpha 1": Cell(alike(20), alpha=1.0),
}
FEW_SITES = {
    "3 + 2": Cell(rotations([3, 2]), 96),
    "4 + 1": Cell(rotations([4, 1]), 96),
    "2 + 2": Cell(rotations([2, 2]), 96),
    "2 + 1": Cell(rotations([2, 1]), 96),
    "1 + 1": Cell(rotations([1, 1]), 96),
}
TABLES = {
    "no_groups": NO_GROUPS,
    "groups": GROUPS,
    "unequal": UNEQUAL,
    "skewed": SKEWED,
    "few_sites": FEW_SITES,
}


@cache
def pool() -> Data:
    data = resolve("data", "digits")(None, 0, 1)
    return data.x_train[:, 0], data.y_train


@cache
def rows_of_class() -> list[np.ndarray]:
    return [np.flatnonzero(pool()[1] == label) for label in range(CLASSES)]


def federation(cell: Cell, rng: np.random.Generator) -> tuple[list[Data], np.ndarray]:
    """Return images and labels of each client that takes part, and its true group."""
    everybody = [(kind, group) for group, (kind, number) in enumerate(cell.groups) for _ in range(number)]
    of_group = [rng.dirichlet([cell.group_alpha] * CLASSES) if cell.group_alpha else None for _ in cell.groups]
    clients, truth = [], []
    for kind, group in everybody:
        count = cell.samples
        if isinstance(count, tuple):
            count = round(float(np.exp(rng.uniform(*np.log(count)))))
        shares = rng.dirichlet([cell.alpha] * CLASSES) if cell.alpha else of_group[group]
        clients.append(_client(kind, count, shares, rng))
        truth.append(group)
    return clients, np.array(truth)


def _client(kind: Kind, count: int, shares: np.ndarray | None, rng: np.random.Generator) -> Data:
    labels = pool()[1]
    if shares is None and not kind.classes:
        rows = rng.choice(len(labels), size=count, replace=False)
    else:
        if shares is None:
            shares = np.isin(np.arange(CLASSES), kind.classes) / len(kind.classes)
        counts = rng.multinomial(count, shares)
        picked = [
            rng.choice(of_class, size=min(number, len(of_class)), replace=False)
            for number, of_class in zip(counts, rows_of_class(), strict=True)
        ]
        rows = rng.permutation(np.concatenate(picked))
    return changed(kind, rows, rng)


def changed(kind: Kind, rows: np.ndarray, rng: np.random.Generator) -> Data:
    """Return digits by their numbers as a client of a kind has them."""
    images, labels = pool()
    x = np.rot90(images[rows], kind.turns, axes=(1, 2))
    if kind.mirror:
        x = x[:, :, ::-1]
    names = np.arange(CLASSES)
    for a, b in kind.swaps:
        names[a], names[b] = b, a
    return x.reshape(len(rows), PIXELS), (names[labels[rows]] + kind.shift) % CLASSES


def fold_changes(clients: Sequence[Data], plan: FoldPlan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what each fold changes in the common model, (M, m, R), and which clients have samples enough."""
    rng = np.random.default_rng([seed, 1])
    sizes = np.array([plan.size_of(len(y)) for _, y in clients])
    enough = np.flatnonzero(sizes)
    drawn = {i: rng.permutation(len(clients[i][1]))[: plan.folds * sizes[i]] for i in enough}
    model, changes = initial(seed), np.empty((len(clients), plan.folds, PARAMETERS), dtype=np.float32)
    for size in np.unique(sizes[enough]).tolist():
        alike = np.flatnonzero(sizes == size)
        x, y = (torch.from_numpy(np.concatenate([clients[i][part][drawn[i]] for i in alike])) for part in (0, 1))
        # The folds of all clients in one stack: a federation takes tenths of a second.
        folds, training = (
            list(np.arange(len(y)).reshape(-1, size)),
            training_on_folds.on_folds(Training(), plan.steps, plan.rate),
        )
        found = training_on_folds.fold_changes(
            model, model.state_dict(), x.float()[:, None], y, "cross_entropy", folds, training, rng
        )
        changes[alike] = found.reshape(len(alike), plan.folds, -1)
    return changes[enough], enough


def initial(seed: int) -> Module:
    build = resolve("model", "mlp")
    model = build((1, 8, 8), CLASSES, hidden=[HIDDEN])
    state = initial_models(lambda: build((1, 8, 8), CLASSES, hidden=[HIDDEN]), 1, "same", seed)[0]
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    return model


def sent(changes: np.ndarray, seed: int) -> np.ndarray:
    """Return the rows as the server has them after the way over the wire, (M, m, width) float64."""
    form = RowForm.of(None, PARAMETERS, changes.shape[1])
    rows = [form.unpack(form.pack(of_client, np.random.default_rng([seed, 3]))) for of_client in changes]
    return np.stack(rows).astype(np.float64)
