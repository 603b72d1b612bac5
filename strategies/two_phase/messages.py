"""The messages of two-phase mixed regression."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.strategies.shared.messages import NEGLIGIBLE, AllModelsUpdate, Shares
from florets.task.wire.bank import Bank
from florets.task.wire.codec import LossList, Number, Tensor, read
from florets.task.wire.records import Layout, MalformedMessage
from florets.task.wire.replies import Examples, Update

MOMENTS = "florets.strategies.two_phase.client:factors"
SUBSPACE = "florets.strategies.two_phase.client:subspace"
MOMENT_DESCENT = "florets.strategies.two_phase.client:moment_descent"
TRAIN_SOFT = "florets.strategies.two_phase.client:train_soft"

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Term:
    """Reply to `SUBSPACE`: the client's products with the bases (A, R, k)."""

    terms: Annotated[Values, Tensor("A", "R", "k")]
    num_examples: Examples


@dataclass(frozen=True)
class LocalFactors:
    """Reply to `MOMENTS`: factors (A, p, R) of the client's moment matrices, which are symmetric."""

    left: Annotated[Values, Tensor("A", "p", "R")]
    num_examples: Examples

    @property
    def right(self) -> Values:
        """The other side."""
        return self.left


@dataclass(frozen=True)
class TwoSidedFactors:
    """Reply to `MOMENTS`: both sides' factors (A, p, R) of the client's moment matrices."""

    left: Annotated[Values, Tensor("A", "p", "R")]
    right: Annotated[Values, Tensor("A", "p", "R")]
    num_examples: Examples


@dataclass(frozen=True)
class AnchorUpdate(Update):
    """Reply to `MOMENT_DESCENT`: the next estimate (R,), and the size of the residual before the step.

    Its model is not known before the anchors are grouped, and is 0 here.
    """

    residual: Annotated[float, Number(least=0)] = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class SoftUpdate(AllModelsUpdate):
    """Reply to `TRAIN_SOFT`: all K models, and the client's weight and loss of each (K,)."""

    shares: Annotated[npt.NDArray[np.float64], Shares("K", name="memberships")]
    losses: Annotated[npt.NDArray[np.float64], LossList("K")] = field()


def read_soft_update(content: RecordDict, layout: Layout, sent: Bank) -> SoftUpdate:
    """Read the update of all models that were `sent`, (K, R)."""
    update = read(SoftUpdate, content, layout=layout, K=len(sent))
    changed = (update.vectors != sent).any(axis=1) & (update.shares <= NEGLIGIBLE)
    if changed.any():
        raise MalformedMessage(f"model {int(np.argmax(changed))} has no weight, and yet it changed")
    return update
