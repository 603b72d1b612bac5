"""Read what clients send that mix K models and train all of them (`train.mixture`)."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.bank import Bank
from florets.task.wire.layout import Layout
from florets.task.wire.replies import Update, example_count, finite_number, reply_metrics
from florets.task.wire.soft import read_all_models, read_shares


@dataclass(frozen=True)
class MixtureUpdate(Update):
    """All K models as the client trained them, (K, R), and its share of each, (K,), which sum to 1.

    `model` is the one with the largest share, `vector` its parameters; `train_loss` is the mixture's mean loss on the
    training data before training.
    """

    vectors: Bank = field(default_factory=lambda: np.zeros((0, 0)))
    shares: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """All K models."""
        return self.vectors


def read_mixture_update(content: RecordDict, layout: Layout, num_models: int) -> MixtureUpdate:
    """Read the update of all K models.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, or the shares are no shares of 1.
    """
    metrics = reply_metrics(content, {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.SHARES}, arrays=True)
    vectors = read_all_models(content, layout, num_models)
    shares = read_shares(metrics, kinds.SHARES, num_models)
    model, loss = int(np.argmax(shares)), finite_number(metrics, kinds.TRAIN_LOSS)
    return MixtureUpdate(model, vectors[model], example_count(metrics), loss, vectors=vectors, shares=shares)
