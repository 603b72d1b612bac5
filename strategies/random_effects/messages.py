"""Random effects: the message that they alone send, and the coefficients that it is about."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire import kinds
from florets.task.wire.codec import Number, Tensor
from florets.task.wire.records import MalformedMessage
from florets.task.wire.replies import Examples, check_convex

TERMS = "florets.strategies.random_effects.client:terms"
_ROUNDING = 1e-6
_terms = partial(Tensor, record=kinds.SECOND_ORDER, dtype="float64", most=kinds.DIVERGED)


@dataclass(frozen=True)
class OwnTerms:
    """Reply to `TERMS`: the loss of the model that was sent, to the second order, by the coefficients of `contrasts`.

    `value` is the sum of half squared errors, or of cross-entropies. All are 0 where the client says nothing.
    """

    value: Annotated[float, Number(least=0, most=kinds.DIVERGED)]
    gradient: Annotated[npt.NDArray[np.float64], _terms("P", name=kinds.GRADIENT)]
    hessian: Annotated[npt.NDArray[np.float64], _terms("P", "P", name=kinds.HESSIAN)]
    num_examples: Examples

    def check(self) -> None:
        """Refuse a Hessian that no convex loss has."""
        check_convex(self.hessian)

    @property
    def is_told(self) -> bool:
        """Whether the client says anything."""
        return bool(self.hessian.any())

    def check_squares(self) -> None:
        """Refuse terms that no sum of squared errors has: more records, or a steeper slope than the errors allow."""
        if not self.is_told:
            return
        if abs(self.hessian[-1, -1] - self.num_examples) > _ROUNDING * self.num_examples:
            raise MalformedMessage(f"the Hessian does not count the {self.num_examples} examples")
        # Cauchy-Schwarz: each slope is a sum of errors times inputs.
        most = 2 * self.value * np.diagonal(self.hessian)
        if (np.square(self.gradient) > (1 + _ROUNDING) * most + np.finfo(np.float32).tiny).any():
            raise MalformedMessage("the gradient is steeper than its errors allow")


def offset_basis(num_outputs: int) -> npt.NDArray[np.float64]:
    """Return the basis (C, W) of offsets of C outputs: of classes, Helmert's C - 1 contrasts."""
    if num_outputs == 1:
        return np.ones((1, 1))
    if num_outputs == 2:
        return np.array([[-0.5], [0.5]])
    # Row k compares class k with the mean of the classes before it.
    steps = np.arange(1, num_outputs)
    contrasts = np.tri(num_outputs - 1, num_outputs)
    contrasts[steps - 1, steps] = -steps
    found: npt.NDArray[np.float64] = (contrasts / np.sqrt(steps * (steps + 1))[:, np.newaxis]).T
    return found


@lru_cache(maxsize=8)
def contrasts(num_outputs: int, depth: int) -> npt.NDArray[np.float64]:
    """Return the basis (C (d + 1), W (d + 1)) of a linear layer's weights (C, d), row by row, and its biases (C,)."""
    basis = offset_basis(num_outputs)
    rows, width = basis.shape
    found = np.zeros((rows * (depth + 1), width * (depth + 1)))
    found[: rows * depth, : width * depth] = np.kron(basis, np.eye(depth))
    found[rows * depth :, width * depth :] = basis
    found.flags.writeable = False
    return found
