"""Settings and state of discovery."""

from dataclasses import dataclass, field
from typing import ClassVar

from florets.strategies.base.report import State
from florets.strategies.core import FloatArray
from florets.strategies.core.placement import Centres
from florets.strategies.settings import SharedLayers
from florets.strategies.shared.fold_round import FoldRound
from florets.task.keys import setting


@dataclass(frozen=True)
class DiscoverySettings(SharedLayers):
    """Detects in round 1 whether there are groups, how many and which; then each group trains its own model."""

    level: float = setting(0.005, "level of the test: how often identical clients may be divided", above=0, below=1)
    place_one_class: bool = setting(
        False,
        "clients whose training records are all of one class take no part in the search for groups, and are placed "
        "afterwards: they differ from all others under any rule",
    )

    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
    freezes: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"folds"})


@dataclass
class DiscoveryState(State):
    """What discovery remembers.

    `folds` has the common model and what clients learned from it, without their rows once groups are `frozen`;
    newcomers are placed by `centres`, None where there is one model. No group fits the `unfit`; the `unsure`, placed
    by one row of few samples, are placed again from a round on. Groups were looked for `looks` times. Before, `move`
    is the mean of the last round's updates, and `moves_on` whether it has the direction of the one before.
    """

    phase: str = "discovery"
    folds: FoldRound | None = None
    frozen: bool = False
    centres: Centres | None = None
    unfit: set[str] = field(default_factory=set)
    unsure: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    move: FloatArray | None = None
    moves_on: bool = True
