"""Read the reply to `train` where the server asked for the losses of local training, for FedGWC."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Layout
from florets.task.wire.replies import (
    Update,
    example_count,
    finite_number,
    reply_losses,
    reply_metrics,
    update_vector,
)


@dataclass(frozen=True)
class TracedUpdate(Update):
    """An update of model `model`, and the losses (S,) of its training; infinite where it diverged."""

    step_losses: npt.NDArray[np.float64] = field(kw_only=True)


def read_traced_update(content: RecordDict, layout: Layout, model: int, number: int) -> TracedUpdate:
    """Read an update with S = `number` losses.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes, the number of losses or a value is wrong.
    """
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.STEP_LOSSES}
    metrics = reply_metrics(content, keys, arrays=True)
    return TracedUpdate(
        model,
        update_vector(content, layout),
        example_count(metrics),
        finite_number(metrics, kinds.TRAIN_LOSS),
        step_losses=reply_losses(metrics, number, kinds.STEP_LOSSES),
    )
