"""k-FED: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import MAX_EXAMPLES, Numbers, Tensor
from florets.task.wire.records import MalformedMessage

KMEANS = "florets.zoo.k_fed.client:kmeans"

MAX_COORDINATE = 1e15
"""Guards squared distances against implausible claims: beyond it they lose all figures, later they overflow."""


@dataclass(frozen=True)
class LocalCentres:
    """Reply to `KMEANS`: centres (n, D) of a client's own data, and how many of its samples belong to each (n,)."""

    sizes: Annotated[npt.NDArray[np.int64], Numbers("n", integer=True, least=1)]
    centres: Annotated[npt.NDArray[np.float64], Tensor("n", "D", most=MAX_COORDINATE, double=True)]

    def check(self) -> None:
        """Hold the sizes to what a client can have."""
        if int(self.sizes.sum()) > MAX_EXAMPLES:
            raise MalformedMessage(f"the sizes sum to more than {MAX_EXAMPLES} samples")
