"""Read the reply to `train.split`: an update, prototypes, and statistics of the features in the model that came."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, Layout, MalformedMessage, Vector, read_array
from florets.task.wire.prototypes import PrototypeUpdate, read_prototype_update
from florets.task.wire.replies import finite_number


@dataclass(frozen=True)
class SplitUpdate(PrototypeUpdate):
    """An update with prototypes after training, and statistics of the features before it.

    Attributes
    ----------
    statistics
        (C, D) mean feature of each class times the class's share of the samples.
    spread
        Variance of the estimate of all of them together, at least 0.
    """

    statistics: Vector = field(kw_only=True)
    spread: float = field(kw_only=True)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The prototypes and the statistics, which the server uses as well."""
        return np.concatenate([self.prototypes, self.statistics])


def read_split_update(content: RecordDict, layout: Layout, model: int, num_classes: int, width: int) -> SplitUpdate:
    """Read an update, prototypes and statistics of `width` entries for each class that the client has.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong.
    """
    record, metrics = content.get(kinds.STATISTICS), content.get(kinds.METRICS)
    if not isinstance(record, ArrayRecord) or list(record) != [kinds.STATISTICS]:
        raise MalformedMessage(f"the reply must hold one array {kinds.STATISTICS!r} in a record of that name")
    if not isinstance(metrics, MetricRecord) or kinds.SPREAD not in metrics:
        raise MalformedMessage(f"the reply holds no metric {kinds.SPREAD!r}")
    spread = finite_number(metrics, kinds.SPREAD)
    if spread < 0:
        raise MalformedMessage(f"{kinds.SPREAD} is {spread}, below 0")
    rest = RecordDict({name: content[name] for name in content if name != kinds.STATISTICS})
    rest[kinds.METRICS] = MetricRecord({name: metrics[name] for name in metrics if name != kinds.SPREAD})
    own = read_prototype_update(rest, layout, model, num_classes, width)
    present = np.flatnonzero(own.counts)
    rows = read_array(record[kinds.STATISTICS], Entry(kinds.STATISTICS, (len(present), width), "float32", 0))
    if not np.isfinite(rows).all():
        raise MalformedMessage("the statistics hold NaN or infinite values")
    statistics = np.zeros((num_classes, width))
    statistics[present] = rows
    return SplitUpdate(
        own.model,
        own.values,
        own.num_examples,
        own.train_loss,
        prototypes=own.prototypes,
        counts=own.counts,
        statistics=statistics,
        spread=spread,
    )
