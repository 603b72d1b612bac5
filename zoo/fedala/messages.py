"""FedALA: the messages that it alone sends."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from florets import Update
from florets.task.wire import kinds
from florets.task.wire.codec import Vector as FlatModel
from florets.task.wire.records import Entry, Layout, MalformedMessage, Vector

TRAIN_MIXED = "florets.zoo.fedala.client:train_mixed"
EVALUATE_MIXED = "florets.zoo.fedala.client:evaluate_mixed"


def mix_layout(layers: Layout) -> Layout:
    """Return the layout of the weights of these layers: one float32 for each entry."""
    return Layout(tuple(Entry(e.name, e.shape, "float32", e.start) for e in layers.entries))


@dataclass(frozen=True)
class MixedUpdate(Update):
    """Reply to `TRAIN_MIXED`: an update, and the global model's weight in each entry of the client's upper layers."""

    mix: Annotated[Vector, FlatModel(record=kinds.MIX, layout="mix_layout")] = field(kw_only=True)

    def check(self) -> None:
        """Hold the weights to their range."""
        if np.any((self.mix < 0) | (self.mix > 1)):
            raise MalformedMessage(f"{kinds.MIX} holds a weight that is not from 0 to 1")
