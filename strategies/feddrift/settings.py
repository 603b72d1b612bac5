"""Settings of FedDrift."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedDriftSettings(Settings):
    """Clients whose loss rises get models of their own, and models that do as well on each other's data merge."""

    period: int = setting(
        5, "rounds from one question for a client's losses to the next: a step of the paper", least=1
    )
    delta: float = setting(
        1.0,
        "a client whose lowest loss is by more than this above that of its last question gets a model of its own; in "
        "the loss's unit",
        above=0,
    )
    merge_delta: float | None = setting(
        None, "models merge that lose less than this on each other's data; null: strategy.delta", above=0
    )
    first_models: Literal["each", "one"] = setting(
        "each", "clients begin with a model for each, which then merge, or with one for all"
    )

    one_model: ClassVar[bool] = True
    """The run begins with one, and says itself how many there are; `k` is not used."""

    @property
    def merge_threshold(self) -> float:
        """delta', the distance below which models merge."""
        return self.delta if self.merge_delta is None else self.merge_delta
