"""FedSoft: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire.codec import Numbers
from florets.task.wire.records import MalformedMessage
from florets.task.wire.replies import Examples

TRAIN_ANCHORED = "florets.zoo.fedsoft.client:train_anchored"
CLOSEST = "florets.zoo.fedsoft.client:closest"


@dataclass(frozen=True)
class ClosestCounts:
    """Reply to `CLOSEST`: training samples that each model explains best, (K,), together `num_examples`."""

    counts: Annotated[npt.NDArray[np.int64], Numbers("K", name="closest", integer=True, least=0)]
    num_examples: Examples

    def check(self) -> None:
        """Hold the counts to the examples."""
        if int(self.counts.sum()) != self.num_examples:
            raise MalformedMessage(f"closest do not sum to the {self.num_examples} examples")
