"""Oracle: what clustered training reaches where the truth is known; for simulations."""

from typing import Any, Literal

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import ClusteredStrategy


class Oracle(ClusteredStrategy):
    """The benchmark that no algorithm can use in practice.

    Parameters
    ----------
    mode
        "labels": each client trains the model of its true cluster. "true_start": clients choose models as in IFCA,
        whose initial models (the caller packs them) are the true ones.
    common
        Parameters of `ClusteredStrategy`; K is the number of models in the initial arrays.

    Raises
    ------
    FederationError
        In mode "labels", if an online client's true cluster is not known or has no model.

    Source: two-phase paper (mixed regression), section V: benchmark (4) is "true_start", its MNIST runs "labels".
    """

    def __init__(self, *, mode: Literal["labels", "true_start"] = "labels", **common: Any) -> None:
        super().__init__(**common)
        self.mode = mode

    @property
    def phase(self) -> str:
        """With labels nothing is left to cluster; from the true models clients still choose."""
        return "training" if self.mode == "labels" else "clustering"

    def plan(self, context: RoundContext) -> Plan:
        """Let every participant train the model of its true cluster, or the one that it chooses."""
        if self.mode == "true_start":
            return context.train_selected()
        count = context.models.count
        self.assignment.update({client.key: _true_model(client, count) for client in self.federation.online()})
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
