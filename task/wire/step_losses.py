"""Read the reply to `train` where the server asked for the losses of local training, for FedGWC."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Layout
from florets.task.wire.replies import Update, read_update, reply_losses, reply_metrics


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
    losses = reply_losses(metrics, number, kinds.STEP_LOSSES)
    plain = MetricRecord({name: value for name, value in metrics.items() if name != kinds.STEP_LOSSES})
    own = read_update(RecordDict({**content, kinds.METRICS: plain}), layout, model)
    return TracedUpdate(own.model, own.values, own.num_examples, own.train_loss, step_losses=losses)
