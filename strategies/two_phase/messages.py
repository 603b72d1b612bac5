"""The messages of two-phase mixed regression."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import Tensor
from florets.task.wire.replies import Examples

MOMENTS = "florets.strategies.two_phase.client:factors"
SUBSPACE = "florets.strategies.two_phase.client:subspace"
MOMENT_DESCENT = "florets.strategies.two_phase.client:moment_descent"

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Term:
    """Reply to `SUBSPACE`: the client's products with the bases (A, R, k)."""

    terms: Annotated[Values, Tensor("A", "R", "k")]
    num_examples: Examples


@dataclass(frozen=True)
class LocalFactors:
    """Reply to `MOMENTS`: the moments (A, p, R) of the client's examples at each anchor's estimate."""

    moments: Annotated[Values, Tensor("A", "p", "R")]
    num_examples: Examples
