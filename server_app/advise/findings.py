"""The finding of discovery in the terms of advice: groups, a client that fits nobody, or one population."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from florets.reports.summary import last_evidence, read_lines
from florets.server_app.advise.outcomes import read_outcome

Kind = Literal["groups", "lone", "none", "all_differ", "too_few", "open", "moving"]


@dataclass(frozen=True)
class Finding:
    """Whether there are groups.

    Attributes
    ----------
    kind
        "groups": at least two groups of at least two clients. "lone": one group, and clients that fit nobody. "none":
        the clients cannot be told apart. "all_differ": every client differs from every other. "too_few": no test was
        possible. "open": the rounds were samples of the clients, and too few of these took part. "moving": the model
        had not learned yet what all clients share.
    groups
        The clients of each group, the largest first; of "none" all in one.
    lone
        Clients that are a group of their own, or that no group fits.
    p_value
        None where nothing was tested.
    """

    kind: Kind
    groups: tuple[tuple[str, ...], ...]
    lone: tuple[str, ...] = ()
    p_value: float | None = None

    @property
    def num_clients(self) -> int:
        """Clients that were looked at."""
        return sum(map(len, self.groups)) + len(set(self.lone) - {key for group in self.groups for key in group})


def finding_of(evidence: Mapping[str, Any], models: Mapping[str, int], placed: Collection[str] = ()) -> Finding:
    """Return what the evidence of a run's discovery says.

    Parameters
    ----------
    evidence
        The detail of the round that looked for groups.
    models
        Model of each client at the end of the run, where it has one.
    placed
        Clients that took no part in the search: they are in their groups, and none of them is called alone.
    """
    members: dict[int, list[str]] = {}
    for key, model in sorted(models.items()):
        members.setdefault(model, []).append(key)
    groups = tuple(tuple(keys) for _, keys in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))
    verdict, p_value = evidence["verdict"], evidence["p_value"]
    if verdict != "groups":
        everybody = (tuple(sorted(models)),)
        kind: Kind = verdict if verdict in ("none", "all_differ", "open") else "too_few"
        if verdict == "open" and not evidence.get("needed", 1):
            kind = "moving"
        return Finding(kind, everybody, (), p_value)
    searched = [[key for key in keys if key not in placed] for keys in groups]
    lone = tuple(sorted(keys[0] for keys in searched if len(keys) == 1))
    several = sum(len(keys) > 1 for keys in searched) > 1
    return Finding("groups" if several else "lone", groups, lone, p_value)


def finding_in(folder: Path, placed: Collection[str] = ()) -> Finding:
    """Return what a finished run's discovery says; see `finding_of`."""
    lines = read_lines(folder)
    evidence = last_evidence(lines)
    assert evidence is not None
    return finding_of(evidence, read_outcome("discovery", folder).groups, placed)
