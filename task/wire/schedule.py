"""The learning rate over the rounds: the one rule that clients' training and the server's gradient step share."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi
from typing import Any, Literal, get_args

from florets.task.wire import kinds

Kind = Literal["constant", "step", "exponential", "cosine", "inverse_sqrt"]


@dataclass(frozen=True)
class Schedule:
    """What the learning rate is multiplied by in round r, with t = r - 1.

    Parameters
    ----------
    kind
        ``constant``: 1. ``step``: factor^floor(t / rounds). ``exponential``: factor^t. ``cosine``: from 1 down to
        `factor` over `rounds` rounds, along half a cosine, and `factor` from then on. ``inverse_sqrt``:
        1 / sqrt(1 + t / rounds).
    rounds, factor
        See `kind`.

    Raises
    ------
    ValueError
        If `kind` is another word, `rounds` is below 1 or `factor` not in [0, 1].
    """

    kind: Kind = "constant"
    rounds: int = 1
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.kind not in get_args(Kind):
            raise ValueError(f"schedule={self.kind!r} must be one of {', '.join(get_args(Kind))}.")
        if self.rounds < 1 or not 0 <= self.factor <= 1:
            raise ValueError(
                f"schedule_rounds={self.rounds} must be at least 1, schedule_factor={self.factor} in [0, 1]."
            )

    def at(self, server_round: int) -> float:
        """Return the factor of a round, from 1; round 0 (no round was named) counts as the first."""
        t = max(server_round - 1, 0)
        if self.kind == "step":
            return float(self.factor ** (t // self.rounds))
        if self.kind == "exponential":
            return float(self.factor**t)
        if self.kind == "cosine":
            return self.factor + (1 - self.factor) * (1 + cos(pi * min(t / self.rounds, 1.0))) / 2
        if self.kind == "inverse_sqrt":
            return float((1 + t / self.rounds) ** -0.5)
        return 1.0

    @property
    def settings(self) -> dict[str, str | float]:
        """Message settings that tell the clients; none where the rate is constant."""
        if self.kind == "constant":
            return {}
        return {
            kinds.SCHEDULE: self.kind,
            kinds.SCHEDULE_ROUNDS: self.rounds,
            kinds.SCHEDULE_FACTOR: self.factor,
        }

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Schedule":
        """Return the schedule of a message's settings."""
        if kinds.SCHEDULE not in config:
            return CONSTANT
        return cls(config[kinds.SCHEDULE], int(config[kinds.SCHEDULE_ROUNDS]), float(config[kinds.SCHEDULE_FACTOR]))


CONSTANT = Schedule()
