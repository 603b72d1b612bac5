"""Settings of FlexCFL."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.settings import Experiment, SharedLayers
from florets.task.keys import setting


@dataclass(frozen=True)
class FlexCFLSettings(SharedLayers):
    """The server groups clients once, by the directions of their first updates; then FedAvg in each group."""

    measure: Literal["edc", "madc"] = setting(
        "edc",
        "how updates are compared: cosines with their leading directions (k-means), or how differently two clients "
        "see the others (complete linkage)",
    )
    cold_start_scale: int = setting(20, "clients that form the groups, for each of the k groups", least=1)
    cold_start_steps: int = setting(50, "local steps of a client's cold start, from the one initial model", least=1)
    inter_group_rate: float = setting(
        0.0,
        "eta_g: how far a group's model moves to the others' after a round, relative to the length "
        "|theta| of theirs; 0: not",
        least=0,
        note="0 means not",
    )
    migration: float | None = setting(
        None,
        "cold-start a client again once its label fractions have moved by more than this in sum (the paper's code: "
        "0.2); clients then tell how many samples of each class they have; null: never",
        above=0,
        below=2,
        note="null means never",
    )

    @property
    def start(self) -> Literal["different", "same", "orthonormal", "true"]:
        """How the first models are made: updates are comparable only where they start from one model."""
        return "same"

    def problems(self, run: Experiment) -> list[str]:
        """Refuse migration where there are no labels to count."""
        if self.migration is None or run.task.loss == "cross_entropy":
            return []
        return [
            f"strategy.migration={self.migration:g}: compares counts of labels, and task.loss={run.task.loss} has "
            "none; use strategy.migration=null."
        ]
