"""FedEM's messages: a client is sent K models and its shares of them, and returns all K trained and its new shares.

FedRC also sends each model's class shares, and the reply then holds the client's responsibilities summed by class.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from florets import Update
from florets.task.wire.bank import Bank
from florets.task.wire.codec import MAX_EXAMPLES, Models, Numbers, Sizes
from florets.task.wire.records import MalformedMessage, Vector

TRAIN_MIXTURE = "florets.zoo.fedem.client:train_mixture"
EVALUATE_MIXTURE = "florets.zoo.fedem.client:evaluate_mixture"
_TOLERANCE = 1e-6


class Shares(Numbers):
    """Numbers from 0 that sum to 1."""

    def __init__(self, *shape: str) -> None:
        super().__init__(*shape, least=0.0, most=1 + _TOLERANCE)

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[np.float64]:
        """Return the shares."""
        shares = super().checked(name, value, sizes)
        if not abs(sum(value) - 1) <= _TOLERANCE:
            raise MalformedMessage(f"{name} do not sum to 1")
        return shares


@dataclass(frozen=True, kw_only=True)
class MixtureUpdate(Update):
    """Reply to `TRAIN_MIXTURE`: all K models as trained, (K, R), and the share of each, (K,), which sum to 1.

    `model` is the one with the largest share, `vector` its parameters; `train_loss` is the mixture's mean loss on the
    training data before training.
    """

    model: int = 0
    values: Vector = field(default_factory=lambda: np.zeros(0))
    vectors: Annotated[Bank, Models()]
    shares: Annotated[npt.NDArray[np.float64], Shares("K")]

    def __post_init__(self) -> None:
        """Take the model with the largest share."""
        object.__setattr__(self, "model", int(np.argmax(self.shares)))
        object.__setattr__(self, "values", self.vectors[self.model])

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """All K models."""
        return self.vectors


@dataclass(frozen=True, kw_only=True)
class ClassMixtureUpdate(MixtureUpdate):
    """A mixture's update, with the responsibilities summed over the samples of each class (K, C)."""

    class_sums: Annotated[npt.NDArray[np.float64], Numbers("K", "C", least=0, most=MAX_EXAMPLES)]

    def check(self) -> None:
        """Hold the sums to the shares."""
        totals = self.shares * self.num_examples
        tolerance = _TOLERANCE * totals.sum()
        if not np.allclose(self.class_sums.sum(axis=1), totals, rtol=_TOLERANCE, atol=tolerance):
            raise MalformedMessage("class-sums do not sum to the shares of the examples")
