"""Settings of FLUX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Compared, Experiment, Settings, idle
from florets.strategies.shared.tree_settings import problems_of_k
from florets.task.keys import setting

_ROUND_KEYS = ("slope", "least_rounds", "latest")


@dataclass(frozen=True)
class FLUXSettings(Settings):
    """FedAvg, then groups by mean and spread of the clients' features in the common model, then FedAvg in each."""

    cluster_round: int | None = setting(
        None, "round in which the groups are formed; null: once the training loss levels off", least=1
    )
    slope: float = setting(
        0.06, "the loss has levelled off when it fell by less than this in a round, relative to its first value"
    )
    least_rounds: int = setting(3, "rounds of FedAvg before the loss is looked at", least=2)
    latest: float = setting(
        0.8, "fraction of the rounds after which groups are formed whatever the loss", least=0, most=1
    )
    dimensions: int | None = setting(
        None, "l, directions that features are projected on; null: as many as outputs, at least 8", least=1
    )
    clustering: Literal["dbscan", "kmeans"] = setting(
        "dbscan", "dbscan finds the number of groups; kmeans makes k of them"
    )
    eps_scale: float = setting(1.0, "factor on the radius of DBSCAN that the knee gives", above=0)
    noise_epsilon: float | None = setting(
        None, "epsilon of Laplace noise on each value of a descriptor; null: none", above=0
    )

    compares: ClassVar[Compared] = "clients"
    one_model: ClassVar[bool] = True
    """The groups say how many models there are; `k` is used with clustering=kmeans alone."""

    def conflicts(self) -> list[str]:
        """Refuse keys without an effect."""
        found = [] if self.cluster_round is None else idle(self, _ROUND_KEYS, "strategy.cluster_round=null")
        if self.clustering == "kmeans":
            found += idle(self, ("eps_scale",), "strategy.clustering=dbscan")
        return found

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a round that never comes, and a K that cannot be."""
        found = problems_of_k(run, "strategy.clustering=kmeans", "dbscan") if self.clustering == "kmeans" else []
        if self.cluster_round is not None and self.cluster_round > run.num_rounds:
            found.append(
                f"strategy.cluster_round={self.cluster_round}: must be one of the num_rounds={run.num_rounds} rounds."
            )
        return found
