"""Patience: a run ends once its models no longer improve on validation data, with the best of them."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from flwr.app import ArrayRecord

from florets.conf.schema import Config
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.summary import RoundLine
from florets.server_app.checkpoint import Best
from florets.strategies.base.strategy import Strategy
from florets.task.tested import Evaluation
from florets.task.training.scores import name_of
from florets.task.wire import kinds
from florets.task.wire.evaluation import MIN_RECORDS


def validation_figure(evaluations: Mapping[str, Evaluation], measure: str) -> float | None:
    """Return a figure over all clients' validation records together; None where there is none, or not a finite one.

    Of the values of `measure`, ``auto`` is the loss, ``accuracy``, ``log_loss`` and a user's function are means
    weighted by records, and the others follow from the sums that clients send (`statistics=true`).
    """
    tests = [one.validation for one in evaluations.values() if one.validation is not None]
    if not tests:
        return None
    if measure in ("auto", "log_loss"):
        known = [(test.num_examples, test.loss) for test in tests]
    elif measure == "accuracy":
        known = [(test.num_examples, math.nan if test.accuracy is None else test.accuracy) for test in tests]
    elif ":" in measure:
        name = kinds.VALIDATED + name_of(measure)
        # What is not defined on one client's records says nothing about the model.
        known = [
            (one.validation.num_examples, one.scores[name])
            for one in evaluations.values()
            if one.validation is not None and name in one.scores
        ]
    else:
        from florets.reports.pooled import pooled, statistics_of

        clients = [one for one in statistics_of(evaluations).values() if one.train is not None]
        parts = [part for one in clients if (part := one.parts.get("validation")) is not None]
        # A model that diverged on one client is no good on all, although that one has no sums.
        diverged = any(part.sums is None and part.n >= MIN_RECORDS for part in parts)
        value = math.nan if diverged else pooled(parts, measure)  # type: ignore[arg-type]  # they are the key's words
        return value if math.isfinite(value) else None
    count = sum(count for count, _ in known)
    value = math.fsum(count * figure for count, figure in known) / count if count else math.nan
    return value if math.isfinite(value) else None


class Patience:
    """Watches the validation figure round by round, and remembers the strategy as it was after the best one.

    `lines` and `best` are those of the rounds that the run has done, where it goes on. `best` is None where the run
    has no patience, or no validation figure yet.
    """

    def __init__(self, config: Config, lines: Sequence[RoundLine] = (), best: Best | None = None) -> None:
        self.measure = config.measure
        self._most = config.patience
        self._higher = HIGHER_IS_BETTER.get(name_of(config.measure), False)
        self.best: Best | None = None
        self._value: float | None = None
        self._waited = 0
        for line in lines:
            self._take(line)
        self.best = best

    @property
    def is_over(self) -> bool:
        """Whether the run ends."""
        return self._most is not None and self._waited >= self._most

    def after(self, line: RoundLine, models: ArrayRecord, strategy: Strategy[Any, Any]) -> None:
        """Take in the line of a finished round."""
        if self._take(line):
            self.best = Best(line["round"], models, deepcopy(strategy.state))

    def restore(self, strategy: Strategy[Any, Any]) -> int | None:
        """Give a strategy at the end of its run the best round's models and state, and return that round."""
        if self.best is None:
            return None
        strategy.restore(self.best.state, self.best.models)
        return self.best.server_round

    def words(self, rounds: int) -> str:
        """Return which round's models a run of so many rounds ends with, and why; nothing without patience."""
        figure = "validation loss" if self.measure == "auto" else f"validation {self.measure}"
        if self._most is not None and self.best is None:
            return f"patience={self._most}: no round has a {figure}, so the run ends with the models of its last one"
        if self.best is None:
            return ""
        why = (
            f", which has not improved for {self._waited} evaluations (patience={self._most})" if self.is_over else ""
        )
        return f"ends after round {rounds} with the models of round {self.best.server_round}: best {figure}{why}"

    def _take(self, line: RoundLine) -> bool:
        """Take in a round's figure, and say whether it is the best so far; the first of equal ones is."""
        found = line["validation"]
        # A round without a figure is skipped; one whose models diverged has none either, and is no improvement.
        if self._most is None or (found is None and not line["diverged"]):
            return False
        best = found is not None and (
            self._value is None or (found > self._value if self._higher else found < self._value)
        )
        # With nothing better the initial models are what the run ends with.
        first = self.best is None and self._value is None and self._waited == 0
        self._waited = 0 if best else self._waited + 1
        if best:
            self._value = found
        return best or first
