"""The messages of two-phase mixed regression."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import Number, Tensor
from florets.task.wire.replies import Examples, Update

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


@dataclass(frozen=True)
class AnchorUpdate(Update):
    """Reply to `MOMENT_DESCENT`: the next estimate (R,), and the size of the residual before the step.

    Its model is not known before the anchors are grouped, and is 0 here.
    """

    residual: Annotated[float, Number(least=0)] = field(kw_only=True)
