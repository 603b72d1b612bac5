"""Settings and state of discovery."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from florets.strategies.base.report import State
from florets.strategies.core import FloatArray
from florets.strategies.core.placement import Centres
from florets.strategies.settings import Experiment, SharedLayers, idle
from florets.strategies.shared.fold_round import NOISED_SIZE, FoldRound
from florets.task.keys import setting


@dataclass(frozen=True)
class DiscoverySettings(SharedLayers):
    """Detects in round 1 whether there are groups, how many and which; then each group trains its own model."""

    fold_upload: Literal["projection", "signs", "full"] = setting(
        "projection", "how clients send what they learned on a fold: projected, as signs (128 bytes), or all of it"
    )
    fold_size: int = setting(
        NOISED_SIZE,
        "samples of each of two folds where nothing may depend on how many clients have (privacy.kind)",
        least=1,
    )
    level: float = setting(0.005, "level of the test: how often identical clients may be divided", above=0, below=1)
    least_gain: float = setting(
        0.03,
        "groups are added as long as each gains more than this fraction of the mean gain of the groups so far",
        least=0,
        below=1,
    )
    subgroups: bool = setting(
        False,
        "each group within a group has a model, down to the leaves of the tested tree (k=auto); up to 1000 clients",
    )
    first_look: int | None = setting(
        None,
        "round of the search for groups, with the model trained until then; null: 1, and in a regression as soon as "
        "the model has learned what all clients share",
        least=1,
    )
    place_one_class: bool = setting(
        False,
        "clients whose training records are all of one class take no part in the search for groups, and are placed "
        "afterwards: they differ from all others under any rule",
    )
    rediscover_every: int = setting(
        0,
        "rounds after which the search is repeated among all clients; 0: never",
        least=0,
        note="0 means never",
    )

    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"folds"})

    @property
    def freezes(self) -> bool:  # type: ignore[override]  # it depends on keys
        """Whether the search for groups is never repeated."""
        return not self.rediscover_every

    def problems(self, run: Experiment) -> list[str]:
        """Refuse models of groups within groups where K is given: then nothing is tested."""
        return [] if run.k == "auto" else idle(self, ["subgroups"], "k=auto")


@dataclass
class DiscoveryState(State):
    """What discovery remembers.

    Attributes
    ----------
    folds
        The common model and what clients learned from it on their folds, without these rows once groups are frozen;
        None before round 1.
    frozen
        The search for groups has ended.
    centres
        Centres by which newcomers are placed; None where there is one model.
    unfit
        Clients that no group fits.
    unsure
        Clients placed by one row of few samples, with the round from which they are placed again.
    looks
        Rounds in which groups were looked for among the rows at hand.
    move
        Before groups are looked for, the mean of the last round's updates; see `moves_on`.
    moves_on
        Whether it has the direction of the one before.
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
