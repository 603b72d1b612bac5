"""Nodes with data of their own: nothing is shared out, and what they must have in common is agreed here."""

from dataclasses import dataclass

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, TargetArray
from florets.task.data.samples import fits_shape
from florets.task.partitions.shard import Shard

OWN = "own"
"""Name of the partition: each node's whole data set is its share, and the server has none."""

UNKNOWN_CLUSTER = -1


@dataclass(frozen=True)
class Agreement:
    """What all nodes' data sets have in common, so that a server without data can build the models; see `own`."""

    input_shape: tuple[int, ...]
    num_outputs: int
    num_targets: int = 0

    def __post_init__(self) -> None:
        if not self.input_shape or min(self.input_shape) < 1:
            shape = list(self.input_shape)
            raise ValueError(f"task.partition_options.input_shape={shape} must list the sizes of one input.")
        if self.num_outputs < 1:
            raise ValueError(f"task.partition_options.num_outputs={self.num_outputs} must be at least 1.")


def own(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    input_shape: list[int],
    num_outputs: int,
    num_targets: int = 0,
) -> list[Shard]:
    """Give a node its whole data set, held to what all nodes agreed on; its cluster is not known.

    Flat rows, and grey images without their channel, are given the `input_shape`. `num_outputs` are the classes, or 1
    for a regression unless the loss takes more; `num_targets` the numbers of a sample's target that is a row of y,
    else 0.
    """
    agreed = Agreement(tuple(input_shape), num_outputs, num_targets)
    if data.y_train.shape[1:] != ((num_targets,) if num_targets else ()):
        raise ValueError(
            f"this node's targets have shape {('n', *data.y_train.shape[1:])}, but the federation's have "
            f"task.partition_options.num_targets={num_targets} numbers a sample (0: one)."
        )
    if not fits_shape(data.input_shape, agreed.input_shape):
        raise ValueError(
            f"this node's inputs have shape {data.input_shape}, but the federation's is {agreed.input_shape} "
            "(task.partition_options.input_shape): bring the files into that shape."
        )
    if data.y_train.dtype == np.int64 and max(data.y_train.max(), data.y_test.max()) >= num_outputs:
        # The label itself stays here.
        raise ValueError(
            f"this node has class labels above {num_outputs - 1}, but the federation has "
            f"task.partition_options.num_outputs={num_outputs} of them: labels must be 0 to {num_outputs - 1}."
        )

    def shaped(x: FloatArray, y: TargetArray) -> tuple[FloatArray, TargetArray]:
        return x.reshape(len(x), *agreed.input_shape), y

    transform = shaped if data.input_shape != agreed.input_shape else None
    return [Shard(UNKNOWN_CLUSTER, np.arange(len(data.x_train)), np.arange(len(data.x_test)), transform)]
