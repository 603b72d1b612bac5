"""FedProx: FedAvg whose clients are held back towards the model that they were sent."""

from typing import Any

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.strategy import ClusteredStrategy
from florets.task.wire import kinds


class FedProx(ClusteredStrategy):
    """FedAvg with the proximal term mu/2 * ||theta - theta_sent||^2 in local training.

    Source: Li et al. 2020, Alg. 2. Deviation: every client runs the same number of local epochs.
    """

    def __init__(self, *, proximal_mu: float = 0.01, **common: Any) -> None:
        super().__init__(**common)
        if proximal_mu < 0:
            raise ValueError(f"proximal_mu={proximal_mu} is negative; 0 is FedAvg, larger values hold clients back")
        self.proximal_mu = proximal_mu

    def plan(self, context: RoundContext) -> Plan:
        """Let every participant train model 0 with the proximal term."""
        everybody = {client.key: 0 for client in context.participants}
        return context.train_assigned(everybody, **{kinds.PROXIMAL_MU: self.proximal_mu})
