"""Sorts of federations for the benchmark of discovery: who has what data, in tables by what is hard about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Kind:
    """What the data of a group's clients look like.

    Parameters
    ----------
    turns, mirror
        Quarter turns of the images; whether they are mirrored as well.
    shift, swaps
        What is added to the labels, modulo 10; pairs of labels that trade places.
    classes
        Classes that there are, in equal shares; all, with the data's own shares, where empty.
    """

    turns: int = 0
    mirror: bool = False
    shift: int = 0
    swaps: tuple[tuple[int, int], ...] = ()
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One sort of federation.

    Parameters
    ----------
    groups
        Kind and number of clients of each group.
    samples
        Samples of each client, or the smallest and the largest of a log-uniform draw.
    alpha, group_alpha
        Of Dirichlet class shares, drawn for each client or for each group; 0: none.
    fraction
        Of the clients, drawn uniformly, that take part.
    """

    groups: tuple[tuple[Kind, int], ...]
    samples: int | tuple[int, int] = 60
    alpha: float = 0.0
    group_alpha: float = 0.0
    fraction: float = 1.0


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
GROUPS = {
    "2 rotations, 10 + 10": Cell(rotations([10, 10])),
    "4 rotations, 5 each": Cell(rotations([5] * 4)),
    "4 rotations, 2 each": Cell(rotations([2] * 4)),
    "4 rotations, 15 each x 30": Cell(rotations([15] * 4), 30),
    "4 rotations, 50 each x 30": Cell(rotations([50] * 4), 30),
    "8 rotations and mirrors, 3 each": Cell(rotations([3] * 8)),
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
SAMPLED = {
    f"{name}, {number} of 200": replace(cell, fraction=number / 200)
    for name, cell in {
        "4 rotations x 90": Cell(rotations([50] * 4), 90),
        "4 rotations x 30": Cell(rotations([50] * 4), 30),
        "8 groups x 60": Cell(rotations([25] * 8), 60),
    }.items()
    for number in (20, 40, 60)
}
HARD = {
    name: cell
    for table in (GROUPS, UNEQUAL, SKEWED, SAMPLED, FEW_SITES)
    for name, cell in table.items()
    if name
    in (
        "8 rotations and mirrors, 3 each",
        "3 class mixes (alpha 1), 7, 7, 6",
        "10, 6, 3, 1",
        "17, 1, 1, 1",
        "4 rotations, alpha 3",
        "4 rotations x 30, 20 of 200",
        "8 groups x 60, 40 of 200",
        "3 + 2",
    )
}
TABLES = {
    "no_groups": NO_GROUPS,
    "groups": GROUPS,
    "unequal": UNEQUAL,
    "skewed": SKEWED,
    "few_sites": FEW_SITES,
    "sampled": SAMPLED,
    "hard": HARD,
}
