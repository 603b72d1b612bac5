"""Settings of FedProx."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import OneModel
from florets.task.keys import setting


@dataclass(frozen=True)
class FedProxSettings(OneModel):
    """FedAvg whose clients are regularised towards the global model by a proximal term."""

    proximal_mu: float = setting(0.01, "weight mu of the proximal term mu/2 |theta - theta_start|^2", least=0)

    # A gradient is taken where the proximal term is zero.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}
