"""Read what clients send that mix K models and train all of them (`train.mixture`)."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.bank import Bank
from florets.task.wire.layout import Layout, MalformedMessage
from florets.task.wire.replies import MAX_EXAMPLES, Metrics, Update, example_count, finite_number, reply_metrics
from florets.task.wire.soft import read_all_models, read_shares

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class MixtureUpdate(Update):
    """All K models as the client trained them, (K, R), and its share of each, (K,), which sum to 1.

    `model` is the one with the largest share, `vector` its parameters; `train_loss` is the mixture's mean loss on the
    training data before training. `class_sums` are its responsibilities summed over the samples of each class,
    (K, C); None where they were not asked for.
    """

    vectors: Bank = field(default_factory=lambda: np.zeros((0, 0)))
    shares: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    class_sums: npt.NDArray[np.float64] | None = None

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """All K models."""
        return self.vectors


def read_mixture_update(
    content: RecordDict, layout: Layout, num_models: int, num_classes: int | None = None
) -> MixtureUpdate:
    """Read the update of all K models; with `num_classes` the sums of the responsibilities by class as well.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, the shares are no shares of 1, or the sums do not fit them.
    """
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.SHARES}
    metrics = reply_metrics(content, keys | (set() if num_classes is None else {kinds.CLASS_SUMS}), arrays=True)
    vectors = read_all_models(content, layout, num_models)
    shares = read_shares(metrics, kinds.SHARES, num_models)
    model, loss = int(np.argmax(shares)), finite_number(metrics, kinds.TRAIN_LOSS)
    examples = example_count(metrics)
    sums = None if num_classes is None else _class_sums(metrics, shares * examples, num_classes)
    return MixtureUpdate(model, vectors[model], examples, loss, vectors=vectors, shares=shares, class_sums=sums)


def _class_sums(metrics: Metrics, totals: npt.NDArray[np.float64], classes: int) -> npt.NDArray[np.float64]:
    """Return responsibilities summed by class, (K, C), whose rows must sum to `totals` (K,)."""
    told = metrics[kinds.CLASS_SUMS]
    wanted = len(totals) * classes
    if not isinstance(told, list) or len(told) != wanted:
        found = len(told) if isinstance(told, list) else "no list of"
        raise MalformedMessage(f"{found} {kinds.CLASS_SUMS} came, not {wanted}")
    # Compared before NumPy sees them: an integer beyond every float makes it raise OverflowError.
    if not all(0 <= value <= MAX_EXAMPLES for value in told):
        raise MalformedMessage(f"{kinds.CLASS_SUMS} are not all from 0 to {MAX_EXAMPLES}")
    sums = np.array(told, dtype=np.float64).reshape(len(totals), classes)
    if not np.allclose(sums.sum(axis=1), totals, rtol=_TOLERANCE, atol=_TOLERANCE * totals.sum()):
        raise MalformedMessage(f"{kinds.CLASS_SUMS} do not sum to the shares of the examples")
    return sums
