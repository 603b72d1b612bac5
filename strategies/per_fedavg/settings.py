"""Settings of Per-FedAvg."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import OneModel
from florets.task.keys import setting


@dataclass(frozen=True)
class PerFedAvgSettings(OneModel):
    """One model, trained so that it is good once a client has adapted it by one gradient step on its data."""

    alpha: float = setting(
        0.01, "size of the step by which a client adapts the model, in training; 0: FedAvg", least=0
    )
    test_alpha: float | None = setting(
        None,
        "size of the step before a test; null: alpha. Beside alpha=0 it makes the reference: FedAvg and one step",
        least=0,
    )
    exact_hessian: bool = setting(
        False, "train by the exact gradient after adaptation, with a Hessian product in each step; false: first order"
    )

    adapts: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def conflicts(self) -> list[str]:
        """Refuse Hessian products that count nothing."""
        if self.exact_hessian and self.alpha == 0:
            return [
                "strategy.exact_hessian=true: the Hessian counts alpha times, and strategy.alpha=0; drop one of them."
            ]
        return []
