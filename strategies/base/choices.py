"""Run-level choices that an algorithm follows: each as given, or else the algorithm's default."""

from typing import Any, Literal

from flwr.app import ConfigRecord

from florets.strategies.settings import ChooseK, FirstRound, LossData, Settings
from florets.task.wire import kinds


def choice_of(settings: Settings, name: str, given: Any) -> Any:
    """Return a run-level choice, or the algorithm's default.

    Raises
    ------
    ValueError
        If the algorithm cannot follow the value.
    """
    values = settings.follows.get(name, ())
    if given is not None and given not in values:
        can = f"it takes {' or '.join(values)}" if values else "it has no such choice"
        raise ValueError(
            f"{name}={given}: {type(settings).__name__.removesuffix('Settings')} cannot follow it; {can}"
        )
    return given or (values[0] if values else None)


def start_with(
    k: int | Literal["auto"] | None, choose_k: ChooseK | None, first_round: FirstRound | None
) -> FirstRound | None:
    """Return how round 1 is to start: where folds find K, by updates.

    Raises
    ------
    ValueError
        If it was to start otherwise.
    """
    if k != "auto" or choose_k != "folds":
        return first_round
    if first_round not in (None, "update"):
        raise ValueError(f"first_round={first_round}: choose_k=folds finds K with first_round=update")
    return "update"


def with_loss_data(config: ConfigRecord, loss_data: LossData | None) -> ConfigRecord:
    """Return the settings of a round's messages; where losses are held out, clients train on the rest alone."""
    if loss_data != "held_out":
        return config
    config = config.copy()
    config[kinds.LOSS_DATA] = kinds.HELD_OUT
    return config
