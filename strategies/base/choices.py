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


def loss_batch_of(settings: Settings, given: int | None) -> int | None:
    """Return how many samples a client takes losses on, None for all.

    Raises
    ------
    ValueError
        If the algorithm takes losses on all samples.
    """
    if given is None:
        return None
    if "loss_data" not in settings.follows:
        name = type(settings).__name__.removesuffix("Settings")
        raise ValueError(f"loss_batch={given}: {name} cannot follow it; losses that it takes are on all samples")
    return given


def with_loss_samples(config: ConfigRecord, loss_data: LossData | None, batch: int | None) -> ConfigRecord:
    """Return the settings of a round's messages, with the samples that losses are taken on.

    Where losses are held out, clients train on the rest alone.
    """
    if loss_data != "held_out" and batch is None:
        return config
    config = config.copy()
    if loss_data == "held_out":
        config[kinds.LOSS_DATA] = kinds.HELD_OUT
    if batch is not None:
        config[kinds.LOSS_BATCH] = batch
    return config
