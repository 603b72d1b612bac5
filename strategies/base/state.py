"""`State`: what a strategy remembers from round to round."""

from dataclasses import dataclass, field
from typing import Any

from florets.strategies.base.report import Evaluation


@dataclass
class State:
    """All that a strategy remembers: checkpoints save it whole, and a round that is repeated starts from a copy.

    An algorithm adds what it remembers in a subclass. Fields may be plain values, lists, tuples, sets, dicts, arrays,
    `Models`, `ArrayRecord` and dataclasses of these, in any nesting (`base.encoding`).

    Attributes
    ----------
    assignment
        Model index of every client that has one, by client key.
    phase
        Phase of the current round, for the report: "clustering", "stable", "training" or the algorithm's own.
    evaluations
        Results of the last test evaluation, by client key; empty after a round without one.
    confusions
        Counts of the same tests by model, see `RoundReport.confusions`.
    train_loss
        Mean training loss of the last round, weighted by examples.
    kept
        What a personal method keeps for each client within the groups; None where the run has none.
    """

    assignment: dict[str, int] = field(default_factory=dict)
    phase: str = "training"
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    confusions: dict[int, list[int]] = field(default_factory=dict)
    train_loss: float | None = None
    kept: Any = None
