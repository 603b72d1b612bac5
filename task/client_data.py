"""One client's data as tensors: what it trains on, tests on, and holds out."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Part = tuple[Tensor, Tensor]
"""Inputs and targets of some of a client's samples."""

TestedOn = Literal["test", "validation"]
"""Data that a model is tested on."""


@dataclass(frozen=True)
class ClientData:
    """One client's data, ready for the model.

    Parameters
    ----------
    x_train, x_test
        float32 (n, *input_shape); images lie channels last in memory, where a CPU's convolutions are faster.
    y_train, y_test
        int64 or float32 (n,)
    cluster
        True cluster.
    x_validation, y_validation
        As the others, None where the task holds nothing out.
    subjects
        int64 (n,): training samples of one number belong together; None: each stands for itself.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    cluster: int
    x_validation: Tensor | None = None
    y_validation: Tensor | None = None
    subjects: Tensor | None = None

    def part(self, name: TestedOn) -> Part:
        """Return inputs and targets of a part that is not trained on.

        Raises
        ------
        ValueError
            If there are no validation data.
        """
        if name == "test":
            return self.x_test, self.y_test
        if self.x_validation is None or self.y_validation is None:
            raise ValueError("this client has no validation data: give task.validation_fraction.")
        return self.x_validation, self.y_validation
