"""FedAvg: one model for everybody. What CLoVE and IFCA are with K = 1."""

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from strategies.base import ClusteredStrategy, Plan


class FedAvg(ClusteredStrategy):
    """Federated averaging of one model over all participants.

    Source: McMahan et al. 2017, Alg. 1.
    """

    def plan(self, server_round: int, config: ConfigRecord, grid: Grid) -> Plan:
        """Let every participant train model 0."""
        return self.train_assigned(server_round, {client.key: 0 for client in self.participants}, config)
