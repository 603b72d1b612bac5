"""FedPAC: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import Number, Tensor
from florets.task.wire.records import Vector
from florets.zoo.shared.messages import PrototypeUpdate

TRAIN_SPLIT = "florets.zoo.fedpac.client:train_split"


@dataclass(frozen=True, kw_only=True)
class SplitUpdate(PrototypeUpdate):
    """Reply to `TRAIN_SPLIT`: prototypes after training, and statistics of the features before it.

    Attributes
    ----------
    shares
        (P, D) mean feature of each class that the client has times the class's share of the samples.
    spread
        Variance of the estimate of all of them together, at least 0.
    """

    shares: Annotated[npt.NDArray[np.float32], Tensor("P", "D", name="statistics", record="statistics")]
    spread: Annotated[float, Number(least=0)]

    @property
    def statistics(self) -> Vector:
        """The shares by class (C, D), 0 of classes that the client does not have."""
        return self._by_class(self.shares)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The prototypes and the statistics, which the server uses as well."""
        return np.concatenate([self.rows, self.shares])
