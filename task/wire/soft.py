"""Read what clients send that train all K models, each as far as they belong to it (`train.soft`)."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.bank import Bank
from florets.task.wire.layout import Layout, MalformedMessage
from florets.task.wire.replies import Metrics, Update, example_count, finite_number, reply_losses, reply_metrics

NEGLIGIBLE = 1e-9
"""A weight whose steps would vanish in float32: the model is returned as it came."""

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class SoftUpdate(Update):
    """All K models as the client returned them, (K, R), and its weight of each, (K,), which sum to 1.

    `model` is the one with the largest weight, `vector` its parameters.
    """

    vectors: Bank = field(default_factory=lambda: np.zeros((0, 0)))
    memberships: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """All K models."""
        return self.vectors


def read_soft_update(content: RecordDict, layout: Layout, sent: Bank) -> SoftUpdate:
    """Read the update of all models that were `sent`, (K, R).

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, the weights are no shares of 1, or a model changed that the client
        gives no weight.
    """
    num_models = len(sent)
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.MEMBERSHIPS, kinds.MODEL_LOSSES}
    metrics = reply_metrics(content, keys, arrays=True)
    vectors = read_all_models(content, layout, num_models)
    memberships = read_shares(metrics, kinds.MEMBERSHIPS, num_models)
    changed = (vectors != sent).any(axis=1) & (memberships <= NEGLIGIBLE)
    if changed.any():
        shares = memberships.tolist()
        raise MalformedMessage(f"model {int(np.argmax(changed))} has no weight in {shares!r}, and yet it changed")
    model = int(np.argmax(memberships))
    losses, train_loss = reply_losses(metrics, num_models), finite_number(metrics, kinds.TRAIN_LOSS)
    examples = example_count(metrics)
    return SoftUpdate(model, vectors[model], examples, train_loss, losses, vectors=vectors, memberships=memberships)


def read_all_models(content: RecordDict, layout: Layout, num_models: int) -> Bank:
    """Return the models of a reply that must hold K of them, (K, R).

    Raises
    ------
    MalformedMessage
        If it does not, or an entry is not of this layout.
    """
    arrays = content[kinds.ARRAYS]
    wanted = [f"{model}/{entry.name}" for model in range(num_models) for entry in layout.entries]
    if not isinstance(arrays, ArrayRecord) or arrays.keys() != set(wanted):
        raise MalformedMessage(f"record {kinds.ARRAYS!r} does not hold the {num_models} models that were sent")
    return np.stack(
        [
            layout.flatten({entry.name: arrays[f"{model}/{entry.name}"] for entry in layout.entries})
            for model in range(num_models)
        ]
    )


def read_shares(metrics: Metrics, name: str, number: int) -> npt.NDArray[np.float64]:
    """Return K shares of 1 (K,); raise MalformedMessage where they are none."""
    shares = metrics[name]
    if not isinstance(shares, list) or len(shares) != number:
        found = len(shares) if isinstance(shares, list) else "no"
        raise MalformedMessage(f"{found} {name} came, not {number} shares")
    # Compared before NumPy sees them: an integer beyond every float makes it raise OverflowError.
    if not (all(0 <= share <= 1 + _TOLERANCE for share in shares) and abs(sum(shares) - 1) <= _TOLERANCE):
        raise MalformedMessage(f"{name} is {shares!r}: shares are not negative and sum to 1")
    return np.array(shares, dtype=np.float64)
