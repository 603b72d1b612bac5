"""Settings of CLoVE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Experiment, idle
from florets.strategies.shared.restart_settings import Restarted
from florets.task.keys import setting


@dataclass(frozen=True)
class CLoVESettings(Restarted):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    clustering: Literal["kmeans", "agglomerative", "finch"] = setting("kmeans", "how loss vectors are clustered")
    k_min_improvement: float = setting(
        0.0,
        "least relative gain that a larger K must bring; negative: a loss that it may cost (k=auto)",
        above=-1,
        note="0 takes any gain",
    )
    matching: Literal["min_cost", "overlap", "none"] = setting("min_cost", "how clusters are matched to models")
    square_root: bool = setting(False, "take the square root of the losses before clustering and matching")
    stability_rounds: int = setting(3, "a client is stable when its last s assignments are equal", least=1)
    stability_fraction: float = setting(
        1.0, "fraction of a round's participants that must be stable", above=0, most=1, note="1.0 means all"
    )
    stop_when_stable: bool = setting(True, "freeze the clustering once it is stable")
    reassign_unstable: bool = setting(False, "then also place anew the clients that were not stable themselves")
    outlier_loss: float | None = setting(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst, two rounds running; "
        "null: nobody",
        least=1,
        note="null rejects nobody",
    )
    watch: float | None = setting(
        None,
        "after the freeze: robust z-score from which a client's training loss departs from its cluster's, so that it "
        "is asked for a loss vector again; 8 is a good value, null watches nobody",
        above=0,
        note="null watches nobody",
    )
    probes: int = setting(
        0, "random models beside the K that loss vectors are also taken on, and that nobody trains", least=0
    )
    memory: bool = setting(False, "cluster the latest loss vectors of all clients seen, not only this round's")

    @property
    def extra_models(self) -> int:
        """First models that the algorithm needs beside the K that are trained."""
        return self.probes

    def conflicts(self) -> list[str]:
        """Refuse several starts with probes, which belong to the models of one, and a watch without a freeze."""
        problems = super().conflicts()
        if self.restarts > 1 and self.probes > 0:
            problems.append(f"strategy.probes={self.probes}: cannot be used with strategy.restarts; leave one out.")
        if self.watch is not None and not self.stop_when_stable:
            problems.append(
                f"strategy.watch={self.watch:g}: has an effect only with strategy.stop_when_stable=true; add that, "
                "or leave it out."
            )
        return problems

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a rule for K where K is given, and a personal method where clusters are not frozen for good."""
        problems = super().problems(run)
        if run.k != "auto":
            problems += idle(self, ["k_min_improvement"], "k=auto")
        if run.personal == "fedproto" and (self.watch is not None or not self.stop_when_stable):
            key = "watch" if self.watch is not None else "stop_when_stable"
            problems.append(
                f"strategy.{key}: personal=fedproto begins once clusters are frozen, and their models stay as they "
                f"are from then on, so that losses on them say nothing; leave strategy.{key} out."
            )
        return problems

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update", "farthest"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "ditto", "fedala", "fedproto", "intercept"),
        "choose_k": ("silhouette", "silhouette_lone", "elbow", "silhouette_repeated", "finch", "folds"),
    }
