"""Settings of k-FED."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.settings import Experiment, ManyModels, idle
from florets.task.keys import setting


@dataclass(frozen=True)
class KFEDSettings(ManyModels):
    """Clients cluster their own data, the server groups the centres once, then FedAvg in each group."""

    local_clusters: int = setting(1, "k', centres that a client finds in its data; 1: their mean", least=1)
    local_method: Literal["kmeans", "awasthi_sheffet"] = setting(
        "kmeans",
        "how a client finds several centres: k-means++, or Awasthi and Sheffet's k-means, as the paper has it",
    )
    features: Literal["inputs", "inputs_and_targets"] = setting(
        "inputs", "what is clustered: the inputs, or the inputs with the targets (labels one-hot) beside them"
    )

    def conflicts(self) -> list[str]:
        """Refuse a method where a client's one centre is its mean."""
        return idle(self, ["local_method"], "strategy.local_clusters=2 or more") if self.local_clusters == 1 else []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse more local clusters than models."""
        if run.k == "auto" or not self.local_clusters > run.k >= 1:
            return []
        return [
            f"strategy.local_clusters={self.local_clusters}: a client cannot hold more groups than k={run.k}; "
            "lower it, or raise k."
        ]
