"""Averaging of the clients' replies into the next models: models (option I) or gradients (option II)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from flwr.app import ConfigRecord

from florets.strategies.base.models import Models
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.aggregate import Columns, Rows, ScaledRows, apply_step, average_gradients, average_models
from florets.strategies.settings import RunKeys, Settings, Weighting
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.replies import Update


@dataclass(frozen=True)
class Updates(ScaledRows):
    """Clients' updates as the rows of a matrix (P, R), of which one at a time is unpacked."""

    updates: Sequence[tuple[str, Update]]

    def __len__(self) -> int:
        """Return P."""
        return len(self.updates)

    def __getitem__(self, row: int, /) -> FloatArray:
        """Return one client's vector (R,)."""
        return self.updates[row][1].vector

    def add_scaled(self, row: int, factor: float, total: FloatArray) -> None:
        """See `ScaledRows`."""
        self.updates[row][1].add_scaled(factor, total)


class Averaging(ABC):
    """One of the two averaging options. Shared layers are averaged over all participants, whatever their model."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str | int]:
        """Message settings that tell the client what to return."""

    def in_round(self, config: ConfigRecord, server_round: int) -> Self:
        """Return the averaging with what it takes from the round's message settings."""
        return self

    @abstractmethod
    def _next(
        self,
        bank: FloatArray,
        vectors: Rows,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
        untrained: BoolArray,
    ) -> FloatArray: ...

    def next_bank(self, models: Models, vectors: Rows, assignment: IntArray, weights: FloatArray) -> FloatArray:
        """Return the next bank (K, R).

        Parameters
        ----------
        vectors
            What the P participants returned, (P, R); of updates see `Updates`.
        assignment
            Model of each participant, (P,).
        weights
            Example counts, (P,).
        """
        integers, untrained = models.layout.integers, models.layout.untrained
        bank = self._next(models.bank, vectors, assignment, weights, integers, untrained)
        shared = models.shared
        if shared.any():
            bank[:, shared] = self._next(
                models.bank[:1, shared],
                Columns(vectors, shared),
                assignment * 0,
                weights,
                integers[shared],
                untrained[shared],
            )
        return bank


@dataclass(frozen=True)
class ModelAveraging(Averaging):
    """Option I: clients train locally and return parameters, averaged per model.

    Source: CLoVE Alg. 1, l. 19 and 25; IFCA option II.
    """

    weighting: Weighting = "examples"

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the trained model."""
        return {kinds.REPLY: kinds.REPLY_MODEL}

    def _next(
        self,
        bank: FloatArray,
        vectors: Rows,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
        untrained: BoolArray,
    ) -> FloatArray:
        return average_models(bank, vectors, assignment, weights, self.weighting, integers)


@dataclass(frozen=True)
class GradientAveraging(Averaging):
    """Option II: clients return one gradient, the server takes one step of `learning_rate` (gamma).

    `learning_rate` None is the clients'; the schedule of the run changes it over the rounds. `batch` is the number of
    examples that each gradient is taken on; 0 means all, None the clients' batch size. `optimizer="adam"` is one step
    of a freshly built Adam, about `learning_rate` times the sign of the gradient, as in CLoVE's published code.
    Entries without gradient, such as batch normalisation's running statistics, are averaged as models are.

    Source: CLoVE Alg. 1, l. 21 and 26; IFCA option I (weighting "all_participants").
    """

    learning_rate: float | None = None
    weighting: Weighting = "examples"
    optimizer: Literal["sgd", "adam"] = "sgd"
    batch: int | None = 0

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the gradient."""
        return {kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: self.batch or 0}

    def in_round(self, config: ConfigRecord, server_round: int) -> Self:
        """Return the averaging with its learning rate in a round: the clients', where it has none of its own."""
        training = Training.received(config)
        rate = training.learning_rate if self.learning_rate is None else self.learning_rate
        batch = training.batch_size if self.batch is None else self.batch
        return replace(self, learning_rate=rate * training.rate_factor(server_round), batch=batch)

    def _next(
        self,
        bank: FloatArray,
        vectors: Rows,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
        untrained: BoolArray,
    ) -> FloatArray:
        if self.learning_rate is None:
            raise ValueError("this averaging has no learning rate: give it one, or take it from a round (`in_round`)")
        gradient, members = average_gradients(vectors, assignment, weights, self.weighting, bank.shape)
        stepped = apply_step(bank, gradient, members, self.learning_rate, self.optimizer)
        if untrained.any():
            # Running statistics have no gradient: clients send their values, which are averaged as in option I.
            values = bank[:, untrained], Columns(vectors, untrained)
            stepped[:, untrained] = average_models(*values, assignment, weights, self.weighting, integers[untrained])
        return stepped


def averaging_of(settings: Settings, run: RunKeys) -> Averaging:
    """Return the averaging that a run's keys choose, or else the algorithm's, with the weighting of its settings.

    Raises
    ------
    ValueError
        If the algorithm cannot follow the choice.
    """
    name, known = run.averaging, settings.follows.get("averaging", ("models",))
    if name is not None and name not in known:
        raise ValueError(f"averaging={name}: the algorithm cannot follow it; it takes {' or '.join(known)}")
    weighting: Weighting = getattr(settings, "weighting", "examples")
    if (name or known[0]) == "models":
        return ModelAveraging(weighting)
    batch = 0 if (run.gradient_batch or settings.gradient_batch) == "full" else run.gradient_batch
    return GradientAveraging(run.server_learning_rate, weighting, run.server_optimizer, batch)  # type: ignore[arg-type]
