"""Tell when the clustering has stopped changing."""

from collections.abc import Sequence


def is_stable(history: Sequence[int], num_rounds: int) -> bool:
    """Say whether one client's assignment has stayed the same.

    Parameters
    ----------
    history : sequence of int
        The client's assignments, oldest first, one entry for each round in which it took part.
    num_rounds : int
        Entries that must agree, at least 1.

    Returns
    -------
    bool
        True when there are at least `num_rounds` entries and the last `num_rounds` are all equal.

    Raises
    ------
    ValueError
        If `num_rounds` is below 1.

    Source: CLoVE, section on stability (assignments unchanged for 3 rounds).
    Deviation: the published code compares only the first and the last of the three.
    """
    if num_rounds < 1:
        raise ValueError(f"num_rounds is {num_rounds}: it must be at least 1.")
    recent = history[-num_rounds:]
    return len(recent) == num_rounds and len(set(recent)) == 1


def fraction_stable(flags: Sequence[bool]) -> float:
    """Return the share of clients, from 0 to 1, that declare themselves stable; 0 where nobody answered."""
    return sum(map(bool, flags)) / len(flags) if len(flags) else 0.0
