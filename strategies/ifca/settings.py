"""Settings of IFCA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.shared.restart_settings import Restarted


@dataclass(frozen=True)
class IFCASettings(Restarted):
    """Each client picks the model with the lowest loss on its data, and trains it."""

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update", "farthest"),
        "loss_data": ("train", "held_out"),
        # Its clients choose among the models in every round, which FedProto does not train.
        "personal": ("none", "ditto", "fedala", "intercept"),
        "choose_k": ("folds",),
    }
