"""FedProx: FedAvg whose clients are regularised towards the model that they were sent."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.base.report import State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import MODELS_OF_GROUPS, OneModel
from florets.task.keys import setting
from florets.task.wire import kinds


@dataclass(frozen=True)
class FedProxSettings(OneModel):
    """FedAvg whose clients are regularised towards the global model by a proximal term."""

    proximal_mu: float = setting(0.01, "weight mu of the proximal term mu/2 |theta - theta_start|^2", least=0)

    freezes: ClassVar[bool] = True
    # A gradient is taken where the proximal term is zero.
    follows = MODELS_OF_GROUPS


class FedProx(Strategy[FedProxSettings, State]):
    """FedAvg with the proximal term mu/2 * ||theta - theta_sent||^2 in local training.

    Source: Li et al. 2020, Alg. 2. Deviation: every client runs the same number of local epochs.
    """

    Settings = FedProxSettings
    is_frozen = True

    def round(self, r: Round) -> Steps:
        """Let every participant train model 0 with the proximal term."""
        everybody = {client.key: 0 for client in r.participants}
        updates = yield r.train(everybody, {kinds.PROXIMAL_MU: self.settings.proximal_mu})
        return r.average(updates)
