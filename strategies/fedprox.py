"""FedProx: FedAvg whose clients are held back towards the model that they were sent."""

from typing import Any

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from strategies.base import Plan
from strategies.fedavg import FedAvg
from task.wire import kinds


class FedProx(FedAvg):
    """FedAvg with the proximal term mu/2 * ||theta - theta_sent||^2 in local training.

    Source: Li et al. 2020, Alg. 2. Deviation: every client runs the same number of local epochs.
    """

    def __init__(self, *, proximal_mu: float = 0.01, **common: Any) -> None:
        super().__init__(**common)
        if proximal_mu < 0:
            raise ValueError(f"proximal_mu={proximal_mu} is negative; 0 is FedAvg, larger values hold clients back")
        self.proximal_mu = proximal_mu

    def plan(self, server_round: int, config: ConfigRecord, grid: Grid) -> Plan:
        """Let every participant train model 0 with the proximal term."""
        settings = ConfigRecord({**config, kinds.PROXIMAL_MU: self.proximal_mu})
        return super().plan(server_round, settings, grid)
