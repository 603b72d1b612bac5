"""Settings of the algorithms that group clients by a tree of their distances: where the tree is cut."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Compared, Experiment, Settings, idle
from florets.task.keys import setting


@dataclass(frozen=True)
class TreeSettings(Settings):
    """Keys of an algorithm that groups clients once, by agglomerative clustering."""

    cut: Literal["largest_gap", "threshold", "k"] = setting(
        "largest_gap", "where the tree is cut: at its largest gap, at strategy.threshold, or into k clusters"
    )
    threshold: float | None = setting(
        None, "clusters nearer than this are merged (cut=threshold); its unit is the distance's", least=0
    )
    smallest_group: int = setting(
        1,
        "the largest gap is looked for among the cuts that leave two clusters of at least so many clients; 2 or more "
        "keeps one far client from taking it",
        least=1,
    )

    compares: ClassVar[Compared] = "clients"
    one_model: ClassVar[bool] = True
    """The tree says how many models there are; `k` is used with cut=k alone."""

    def conflicts(self) -> list[str]:
        """Refuse a threshold that is missing, and keys that have no effect."""
        if self.cut != "largest_gap" and (lines := idle(self, ["smallest_group"], "strategy.cut=largest_gap")):
            return lines
        if self.cut == "threshold" and self.threshold is None:
            return ["strategy.cut=threshold: needs strategy.threshold; add it, or use strategy.cut=largest_gap."]
        if self.cut != "threshold" and self.threshold is not None:
            return [
                f"strategy.threshold={self.threshold:g}: has an effect only with strategy.cut=threshold; add that, "
                "or leave it out."
            ]
        return []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a K that cannot be, and clusters of more clients than two of them can have."""
        if self.cut == "k":
            return problems_of_k(run, "strategy.cut=k", "largest_gap")
        # Of nodes with data of their own nobody knows how many will come.
        if run.task.partition == "own" or 2 * self.smallest_group <= run.num_clients or self.smallest_group == 1:
            return []
        return [
            f"strategy.smallest_group={self.smallest_group}: two such groups are more than "
            f"num_clients={run.num_clients}; use at most {max(run.num_clients // 2, 1)}."
        ]


def problems_of_k(run: Experiment, setting: str, otherwise: str) -> list[str]:
    """Return what is wrong with K where a setting, `key=value`, asks for it; `otherwise` is a value that does not."""
    if run.k == "auto":
        name = setting.partition("=")[0]
        return [f"k=auto: {setting} needs a number; give an integer, or use {name}={otherwise}."]
    # Of nodes with data of their own the number of clients is not known before.
    if run.k < 1 or (run.num_clients >= 1 and run.k > run.num_clients):
        return [f"k={run.k}: {setting} needs a number of clusters from 1 to num_clients={run.num_clients}."]
    return []
