"""Settings of SR-FCA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.shared.tree_settings import TreeSettings
from florets.task.keys import setting


@dataclass(frozen=True)
class SRFCASettings(TreeSettings):
    """Clients are grouped by how well each one's own model does on the others' data; clusters are refined twice."""

    solo_steps: int = setting(250, "optimiser steps of a client's model of its own, in round 1", least=1)
    least_size: int = setting(2, "clients that a cluster needs; smaller ones are dissolved", least=1)
    refine_steps: int = setting(2, "how often clients are assigned anew and near clusters merge", least=0)
    refine_every: int = setting(3, "rounds of training before each refinement", least=1)
    trim: float = setting(
        0.15, "beta, fraction of the updates left out at either end of each average", least=0, below=0.5
    )

    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}
