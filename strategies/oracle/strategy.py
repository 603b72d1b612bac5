"""Oracle: clustered training with known true groups or models; for simulations."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client, State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import Experiment, Initial, Weighted
from florets.task.keys import setting
from florets.task.wire.leaving import CHOICES, LOSS_VECTORS


@dataclass(frozen=True)
class OracleSettings(Weighted):
    """A reference that knows the ground truth: the true clusters, or the true models to start from."""

    mode: Literal["labels", "true_start"] = setting(
        "labels", "each client trains its true cluster's model; or IFCA from the true models, where the task has them"
    )

    @property
    def freezes(self) -> bool:  # type: ignore[override]  # it depends on a key
        """Whether groups are the true ones; with true models clients choose again in every round."""
        return self.mode == "labels"

    @property
    def asks(self) -> frozenset[str]:  # type: ignore[override]  # as above
        """Clients' choices, where they are given the true models."""
        return frozenset() if self.mode == "labels" else frozenset({"choices"})

    @property
    def initial(self) -> Initial:
        """The initial models."""
        return "true" if self.mode == "true_start" else self.init

    def problems(self, run: Experiment) -> list[str]:
        """Refuse labels that are not known, too few models for them, and initial models other than the true ones."""
        true = run.task.num_clusters
        if self.mode == "true_start":
            problems = []
            if self.init != "different":
                problems.append(f"strategy.init={self.init}: true_start begins with the true models; leave it out.")
            if run.personal not in (None, "none"):
                problems.append(
                    f"personal={run.personal}: needs known groups; use strategy.mode=labels, or personal=none."
                )
            return problems
        # Nodes with data of their own may tell their cluster in their node config.
        if true == 0 and run.task.partition != "own":
            return [
                "strategy.mode=labels: the oracle needs the true clusters, and this task has none "
                "(task.num_clusters=0); use another strategy."
            ]
        if run.k != "auto" and 1 <= run.k < true:
            return [f"k={run.k}: the oracle trains a model for each of task.num_clusters={true}; use k={true}."]
        return []


class Oracle(Strategy[OracleSettings, State]):
    """A benchmark that needs the ground truth.

    In mode "labels" each client trains the model of its true cluster. In mode "true_start" clients choose models as
    in IFCA; the initial models, which the caller passes, are the true ones.

    Source: two-phase paper (mixed regression), section V: benchmark (4) is "true_start", its MNIST runs "labels".
    """

    Settings = OracleSettings

    def all_leaving(self) -> frozenset[str]:
        """Add what clients send when they choose among the true models."""
        chosen: set[str] = {CHOICES, LOSS_VECTORS} if self.settings.mode == "true_start" else set()
        return super().all_leaving() | chosen

    @property
    def is_frozen(self) -> bool:
        """Whether groups are the true ones."""
        return self.settings.mode == "labels"

    def round(self, r: Round) -> Steps:
        """Let every participant train the model of its true cluster, or the one that it chooses."""
        if self.settings.mode == "true_start":
            # With labels nothing is left to cluster; among true models clients still choose.
            self.state.phase = "clustering"
            updates = yield r.train_best()
        else:
            count = r.models.count
            self.assignment.update({client.key: _true_model(client, count) for client in r.online})
            updates = yield r.train(self.assignment)
        return r.average(updates)


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
