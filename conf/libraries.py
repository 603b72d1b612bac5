"""Data sets and partitioners of other libraries, as they are named for short: ``hf:<name>``, ``flwr:<class>``."""

from collections.abc import Collection
from typing import Any

HUGGING_FACE, FLOWER = "hugging_face", "flower_partitioner"
"""Registered names of the data set and the partition."""

_SHORT = {"data": ("hf:", HUGGING_FACE, "source"), "partition": ("flwr:", FLOWER, "partitioner")}
"""By part of the task: how a short name begins, the registered name, and the option that the rest of it is."""


def is_short(name: str) -> bool:
    """Return whether a value of `task.data` or `task.partition` is such a name, and no import path."""
    return name.startswith(tuple(prefix for prefix, _, _ in _SHORT.values()))


def spell_out(task: dict[str, Any], given: Collection[str]) -> None:
    """Replace short names by what they stand for, in place.

    Parameters
    ----------
    task
        The values of the group `task`.
    given
        Keys that were given by hand. The groups of such a partitioner's clients are not known where nobody says.
    """
    for part, (prefix, name, option) in _SHORT.items():
        short = task.get(part)
        if not isinstance(short, str) or not short.startswith(prefix):
            continue
        options = {option: short.removeprefix(prefix), **(task.get(f"{part}_options") or {})}
        task |= {part: name, f"{part}_options": options}
        if name == FLOWER and "task.num_clusters" not in given and "clusters" not in options:
            task["num_clusters"] = 0
