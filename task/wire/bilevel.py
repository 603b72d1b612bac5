"""Read the reply to `train.bilevel`: a client's update of its cluster's model and of the global one."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Layout, MalformedMessage, Vector
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True)
class BilevelUpdate(Update):
    """An update of model `model`, and beside it the global model (R,) after this client's training."""

    shared: Vector = field(kw_only=True)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The global model, which the server averages as well."""
        return self.shared


def read_bilevel_update(content: RecordDict, layout: Layout, model: int) -> BilevelUpdate:
    """Read both updates.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong.
    """
    shared = content.get(kinds.GLOBAL)
    if not isinstance(shared, ArrayRecord):
        raise MalformedMessage(f"record {kinds.GLOBAL!r} is a {type(shared).__name__}, not an ArrayRecord")
    rest = RecordDict({name: content[name] for name in content if name != kinds.GLOBAL})
    own = read_update(rest, layout, model)
    return BilevelUpdate(own.model, own.values, own.num_examples, own.train_loss, shared=layout.flatten(shared))
