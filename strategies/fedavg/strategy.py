"""FedAvg: one model for everybody. What CLoVE and IFCA are with K = 1."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.base.round import Plan, Round
from florets.strategies.base.report import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import OneModel, PrivacyKind, Releases
from florets.task.wire.replies import Update


@dataclass(frozen=True)
class FedAvgSettings(OneModel):
    """One global model, the average of the clients' models."""

    freezes: ClassVar[bool] = True

    def releases(self, kind: PrivacyKind) -> Releases | None:
        """Name an update in each round, all that clients send."""
        return Releases()


class FedAvg(Strategy[FedAvgSettings, State]):
    """Federated averaging of one model over all participants.

    Source: McMahan et al. 2017, Alg. 1.
    """

    Settings = FedAvgSettings
    is_frozen = True

    def plan(self, context: Round) -> Plan[Update]:
        """Let every participant train model 0."""
        return context.train_assigned({client.key: 0 for client in context.participants})
