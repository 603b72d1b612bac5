"""FlexCFL: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire import kinds
from florets.task.wire.codec import MAX_EXAMPLES, Numbers
from florets.task.wire.records import MalformedMessage

LABELS = "florets.zoo.flexcfl.client:labels"


@dataclass(frozen=True)
class LabelCounts:
    """Reply to `LABELS`: samples of each class (C,)."""

    counts: Annotated[npt.NDArray[np.int64], Numbers("C", name=kinds.LABEL_COUNTS, integer=True, least=0)]

    @property
    def num_examples(self) -> int:
        """Samples of all classes together."""
        return int(self.counts.sum())

    def check(self) -> None:
        """Hold their sum to what a client can have."""
        if not 1 <= self.num_examples <= MAX_EXAMPLES:
            raise MalformedMessage(f"{kinds.LABEL_COUNTS} do not sum to 1 to {MAX_EXAMPLES} samples")
