"""Oracle: what clustered training reaches where the truth is known; for simulations."""

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client
from florets.strategies.base.state import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.oracle.settings import OracleSettings
from florets.task.wire.replies import Update


class Oracle(Strategy[OracleSettings, State]):
    """The benchmark that no algorithm can use in practice.

    In mode "labels" each client trains the model of its true cluster. In mode "true_start" clients choose models as
    in IFCA, whose initial models (the caller packs them) are the true ones.

    Raises
    ------
    FederationError
        In mode "labels", if an online client's true cluster is not known or has no model.

    Source: two-phase paper (mixed regression), section V: benchmark (4) is "true_start", its MNIST runs "labels".
    """

    Settings = OracleSettings

    def plan(self, context: Round) -> Plan[Update]:
        """Let every participant train the model of its true cluster, or the one that it chooses."""
        if self.settings.mode == "true_start":
            # With labels nothing is left to cluster; from the true models clients still choose.
            self.state.phase = "clustering"
            return context.train_selected()
        count = context.models.count
        self.assignment.update({client.key: _true_model(client, count) for client in context.online})
        return context.train_assigned(self.assignment)


def _true_model(client: Client, num_models: int) -> int:
    if client.cluster is None:
        raise FederationError(
            f"the true cluster of client {client.key} is not known, and the oracle needs it: use a task with known "
            "clusters, or another strategy; a node with data of its own may state its true-cluster in its node "
            "config (in process: node.toml in its folder, with the line true-cluster = 1)"
        )
    if not 0 <= client.cluster < num_models:
        raise FederationError(
            f"client {client.key} is of true cluster {client.cluster}, but the oracle has {num_models} models, from "
            f"0: set k to at least {client.cluster + 1}"
        )
    return client.cluster
