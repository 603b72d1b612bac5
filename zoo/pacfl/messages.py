"""PACFL: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import Numbers, Tensor
from florets.task.wire.records import MalformedMessage

PRINCIPAL_VECTORS = "florets.zoo.pacfl.client:principal_vectors"
_TOLERANCE = 1e-3
"""Of a vector's length: what float32 leaves of 1, and more."""


@dataclass(frozen=True)
class PrincipalVectors:
    """Reply to `PRINCIPAL_VECTORS`: directions (D, m) of a client's inputs, of length 1, and their places (m,).

    A place is the class times p plus the rank in it; vectors of one place correspond in any two clients.
    """

    places: Annotated[npt.NDArray[np.int64], Numbers("m", integer=True, least=0)]
    principal: Annotated[npt.NDArray[np.float64], Tensor("D", "m", double=True)]
    most: int
    """Number of places; given, not sent."""

    def check(self) -> None:
        """Hold the places to their order, and the vectors to their length."""
        if (np.diff(self.places) <= 0).any() or self.places[-1] >= self.most:
            raise MalformedMessage(f"places do not rise, or are not from 0 to {self.most - 1}")
        # A huge value becomes infinite first.
        if not (np.abs(np.linalg.norm(self.principal, axis=0) - 1.0) <= _TOLERANCE).all():
            raise MalformedMessage("a principal vector has another length than 1")
