"""FedEM's messages: a client is sent K models and its shares of them, and returns all K trained and its new shares.

FedRC also sends each model's class shares, and the reply then holds the client's responsibilities summed by class.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.strategies.shared.messages import AllModelsUpdate
from florets.task.wire.codec import MAX_EXAMPLES, Numbers
from florets.task.wire.records import MalformedMessage

TRAIN_MIXTURE = "florets.zoo.fedem.client:train_mixture"
EVALUATE_MIXTURE = "florets.zoo.fedem.client:evaluate_mixture"
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class MixtureUpdate(AllModelsUpdate):
    """Reply to `TRAIN_MIXTURE`; `train_loss` is the mixture's mean loss on the training data before training."""


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
