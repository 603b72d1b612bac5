"""What clients return and how the server makes the next models of it: models (option I) or gradients (option II)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from florets.strategies.base.models import Models
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.aggregate import apply_step, average_gradients, average_models
from florets.task.wire import kinds

Normaliser = Literal["group_n", "group", "all"]


class Averaging(ABC):
    """One of the two averaging options. Shared layers are averaged over all participants, whatever their model."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str | int]:
        """Message settings that tell the client what to return."""

    @abstractmethod
    def _next(
        self,
        bank: FloatArray,
        vectors: FloatArray,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
    ) -> FloatArray: ...

    def next_bank(self, models: Models, vectors: FloatArray, assignment: IntArray, weights: FloatArray) -> FloatArray:
        """Return the next bank (K, R).

        Parameters
        ----------
        vectors
            What the P participants returned, (P, R).
        assignment
            Model of each participant, (P,).
        weights
            Example counts, (P,).
        """
        integers = models.layout.integers
        bank = self._next(models.bank, vectors, assignment, weights, integers)
        shared = models.shared
        if shared.any():
            bank[:, shared] = self._next(
                models.bank[:1, shared], vectors[:, shared], assignment * 0, weights, integers[shared]
            )
        return bank


@dataclass(frozen=True)
class ModelAveraging(Averaging):
    """Option I: clients train locally and return parameters, averaged per model.

    Source: CLoVE Alg. 1, l. 19 and 25; IFCA option II.
    """

    normaliser: Normaliser = "group_n"

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the trained model."""
        return {kinds.REPLY: kinds.REPLY_MODEL}

    def _next(
        self,
        bank: FloatArray,
        vectors: FloatArray,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
    ) -> FloatArray:
        return average_models(bank, vectors, assignment, weights, self.normaliser, integers)


@dataclass(frozen=True)
class GradientAveraging(Averaging):
    """Option II: clients return one gradient, the server takes one step of `learning_rate` (gamma).

    `batch` is the number of examples that each gradient is taken on; 0 means all. `optimizer="adam"` is one step of a
    freshly built Adam, about `learning_rate` times the sign of the gradient, as in CLoVE's published code.

    Source: CLoVE Alg. 1, l. 21 and 26; IFCA option I (normaliser "all").
    """

    learning_rate: float
    normaliser: Normaliser = "group_n"
    optimizer: Literal["sgd", "adam"] = "sgd"
    batch: int = 0

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the gradient."""
        return {kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: self.batch}

    def _next(
        self,
        bank: FloatArray,
        vectors: FloatArray,
        assignment: IntArray,
        weights: FloatArray,
        integers: BoolArray,
    ) -> FloatArray:
        gradient, members = average_gradients(vectors, assignment, weights, self.normaliser, len(bank))
        return apply_step(bank, gradient, members, self.learning_rate, self.optimizer)
