"""FedAvg: one model for all clients; CLoVE and IFCA with K = 1."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.base.report import State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import OneModel


@dataclass(frozen=True)
class FedAvgSettings(OneModel):
    """One global model, the average of the clients' models."""

    freezes: ClassVar[bool] = True


class FedAvg(Strategy[FedAvgSettings, State]):
    """Federated averaging of one model over all participants.

    Source: McMahan et al. 2017, Alg. 1.
    """

    Settings = FedAvgSettings
    is_frozen = True

    def round(self, r: Round) -> Steps:
        """Let every participant train model 0."""
        updates = yield r.train({client.key: 0 for client in r.participants})
        return r.average(updates)
