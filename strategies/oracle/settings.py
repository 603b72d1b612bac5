"""Settings of the oracle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Experiment, Weighted
from florets.task.keys import setting


@dataclass(frozen=True)
class OracleSettings(Weighted):
    """The reference that knows the truth: the true clusters, or the true models to start from."""

    mode: Literal["labels", "true_start"] = setting(
        "labels", "each client trains its true cluster's model; or IFCA from the true models, where the task has them"
    )

    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "personal": ("none", "ditto", "fedala", "fedproto", "intercept"),
    }

    @property
    def start(self) -> Literal["different", "same", "orthonormal", "true"]:
        """How the first models are made."""
        return "true" if self.mode == "true_start" else self.init

    def conflicts(self) -> list[str]:
        """Refuse another start than the true models."""
        if self.mode == "labels" or self.init == "different":
            return []
        return [f"strategy.init={self.init}: the true models are the start of true_start; leave it out."]

    def problems(self, run: Experiment) -> list[str]:
        """Refuse labels that are not known, and too few models for them."""
        true = run.task.num_clusters
        if self.mode == "true_start":
            if run.personal in (None, "none"):
                return []
            return [f"personal={run.personal}: needs known groups; use strategy.mode=labels, or personal=none."]
        # Nodes with data of their own may tell their cluster in their node config.
        if true == 0 and run.task.partition != "own":
            return [
                "strategy.mode=labels: the oracle needs the true clusters, and this task has none "
                "(task.num_clusters=0); use another strategy."
            ]
        if run.k != "auto" and 1 <= run.k < true:
            return [f"k={run.k}: the oracle trains a model for each of task.num_clusters={true}; use k={true}."]
        return []
