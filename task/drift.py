"""Drift: groups that change in a simulation; its description and checks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Kind = Literal["sudden", "gradual", "returning"]
Moves = Literal["clients", "concepts"]

SPAN_KINDS = ("gradual", "returning")
"""Kinds of drift that last: they need a span."""


@dataclass(frozen=True)
class Drift:
    """Which data change, when and how.

    Parameters
    ----------
    rounds
        Rounds in which a change begins, ascending: the first in which clients have new data. None: no drift.
    kind
        ``sudden``: all of the data are new at once. ``gradual``: a part of `span` more in each round, until all are.
        ``returning``: as sudden, and `span` rounds later all is as it was before.
    moves
        ``clients``: some clients move to other groups. ``concepts``: the labels of some groups get other names.
    fraction
        Of the clients, or of the groups.
    span
        Rounds; None for sudden drift.
    """

    rounds: tuple[int, ...] = ()
    kind: Kind = "sudden"
    moves: Moves = "clients"
    fraction: float = 0.25
    span: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Drift":
        """Read the plain values of a task's description, in which no key means no drift.

        Raises
        ------
        ValueError
            With all that is wrong.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"task.drift: there is no such key as {', '.join(unknown)}; there are {sorted(known)}.")
        rounds = values.get("rounds", [])
        if not isinstance(rounds, list | tuple):
            raise ValueError(f"task.drift.rounds={rounds!r}: must be a list of integers.")
        drift = cls(**{**values, "rounds": tuple(rounds)})
        if problems := drift.problems():
            raise ValueError(" ".join(problems))
        return drift

    def problems(self) -> list[str]:
        """Return one line for each value that cannot work: key and value, rule, remedy."""
        found = []
        shown = str(list(self.rounds)).replace(" ", "")
        if not all(type(number) is int and number >= 2 for number in self.rounds):
            found.append(f"task.drift.rounds={shown}: must be integers of at least 2; round 1 has the first data.")
        elif list(self.rounds) != sorted(set(self.rounds)):
            found.append(f"task.drift.rounds={shown}: must ascend; sort them and name each once.")
        elif self.kind in SPAN_KINDS and self.span:
            gaps = [later - earlier for earlier, later in zip(self.rounds, self.rounds[1:], strict=False)]
            if min(gaps, default=self.span) < self.span:
                found.append(
                    f"task.drift.rounds={shown}: a change is over task.drift.span={self.span} rounds after it began, "
                    "and the next one must not begin before; move them apart, or lower the span."
                )
        if self.kind not in get_args(Kind):
            found.append(f"task.drift.kind={self.kind}: must be one of {', '.join(get_args(Kind))}.")
        if self.moves not in get_args(Moves):
            found.append(f"task.drift.moves={self.moves}: must be one of {', '.join(get_args(Moves))}.")
        if not isinstance(self.fraction, int | float) or not 0 < self.fraction <= 1:
            found.append(f"task.drift.fraction={self.fraction}: must be greater than 0 and at most 1.")
        if self.kind in SPAN_KINDS and not (type(self.span) is int and self.span >= 1):
            found.append(f"task.drift.kind={self.kind}: needs task.drift.span, at least 1; add it.")
        elif self.kind not in SPAN_KINDS and self.span is not None:
            found.append(
                f"task.drift.span={self.span}: has no effect with task.drift.kind={self.kind}; leave it out, or use "
                f"{' or '.join(SPAN_KINDS)}."
            )
        return found
