"""Partitioners of Flower Datasets by their class names: who holds which training samples."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.data.hugging_face import HuggingFaceDataset
from florets.task.partitions.amounts import draw_test
from florets.task.partitions.composed import LEAST_TEST
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Shard
from florets.task.registry import register_partition

_ROW = "florets_row"
_LABEL = "label"
_OPTIONS = "task.partition_options"


@register_partition("flower_partitioner")
def flower_partitioner(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    partitioner: str,
    clusters: list[int] | None = None,
    **options: Any,
) -> list[Shard]:
    """Let a partitioner of Flower Datasets share out the training samples; for short ``task.partition=flwr:<class>``.

    Client i holds the partitioner's partition i. Of the test set it is drawn as large a part, in the proportions of
    its training labels; of ``NaturalIdPartitioner`` it holds the test samples of its id.

    Parameters
    ----------
    data
        Any data set; of Hugging Face's a partitioner may go by every column, of others by the class, ``label``.
    num_clients
        Partitions. Of a partitioner that finds their number in the data, as many of the first ones.
    num_clusters
        0: the partitioner knows no groups of clients.
    partitioner
        Name of the class, such as ``DirichletPartitioner``.
    clusters
        True cluster of each client, from 0, where it is known; `num_clusters` of them.
    options
        The class's own, such as ``partition_by`` and ``alpha``.
    """
    true = _true_clusters(num_clients, num_clusters, clusters)
    if data.pooled:
        raise ValueError("a partitioner of Flower Datasets shares out a training set; leave out data_options.pooled.")
    kind = _class(partitioner)
    what = f"task.partition=flwr:{partitioner}"
    chosen = _arguments(kind, what, options, num_clients, rng)
    column = chosen.get("partition_by")
    values = None if column is None else _column(data, column)
    try:
        parts = _parts(kind, chosen, column, values, len(data.y_train), num_clients)
    except _TooFew:
        raise
    # The library's own checks, which name its parameters.
    except Exception as error:
        raise ValueError(f"{what}: {type(error).__name__}: {error}") from error
    natural = kind.__name__ == "NaturalIdPartitioner" and isinstance(data, HuggingFaceDataset) and values is not None
    shards = []
    for client, rows in enumerate(parts):
        if natural:
            name = values[rows[0]]  # type: ignore[index]  # `natural` asks
            test = np.flatnonzero([one == name for one in data.columns_test.get(column, ())])  # type: ignore[attr-defined]
            shards.append(Shard(true[client], rows, test, name=str(name)))
        else:
            shards.append(Shard(true[client], rows, _test_rows(data, rows, rng)))
    return shards


class _TooFew(ValueError):
    """A partitioner makes fewer partitions than there are clients."""


def _true_clusters(num_clients: int, num_clusters: int, clusters: Sequence[int] | None) -> list[int]:
    if clusters is None and not num_clusters:
        return [UNKNOWN_CLUSTER] * num_clients
    if clusters is None:
        raise ValueError(
            f"task.num_clusters={num_clusters}: a partitioner of Flower Datasets knows no groups of clients; use "
            f"task.num_clusters=0, or give each client's cluster as {_OPTIONS}.clusters."
        )
    if len(clusters) != num_clients or set(clusters) != set(range(num_clusters)):
        raise ValueError(
            f"{_OPTIONS}.clusters: must give each of the {num_clients} clients a cluster from 0 to "
            f"task.num_clusters - 1 = {num_clusters - 1}, and each cluster a client."
        )
    return list(clusters)


def _class(name: str) -> type[Any]:
    try:
        from flwr_datasets import partitioner
    except ImportError:
        raise ValueError(
            f'task.partition=flwr:{name}: needs flwr-datasets; pip install "florets[hf]" installs it.'
        ) from None
    # Those that share out columns, or need a function, share out no samples to clients by plain options.
    able = [
        one
        for one in partitioner.__all__
        if not one.startswith(("Vertical", "IdToSize")) and not inspect.isabstract(getattr(partitioner, one))
    ]
    if name not in able:
        raise ValueError(f"task.partition=flwr:{name}: there is no such partitioner; there are {', '.join(able)}.")
    found: type[Any] = getattr(partitioner, name)
    return found


def _arguments(
    kind: type[Any], what: str, options: Mapping[str, Any], num_clients: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Return the arguments of a partitioner's class, checked against its signature."""
    parameters = dict(inspect.signature(kind).parameters)
    counted = parameters.pop("num_partitions", None) is not None
    for name in options:
        if name not in parameters:
            own = ", ".join(parameters) or "none"
            hint = " Their number is num_clients." if name == "num_partitions" else ""
            raise ValueError(f"{_OPTIONS}.{name}: {what} has no such option.{hint} Its options: {own}.")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in options:
            raise ValueError(f"{_OPTIONS}.{name} is missing: {what} needs it.")
    seed = {"seed": int(rng.integers(2**31))} if "seed" in parameters else {}
    return {**seed, **options, **({"num_partitions": num_clients} if counted else {})}


def _column(data: Dataset, name: str) -> Sequence[Any]:
    columns: Mapping[str, Sequence[Any]] = data.columns_train if isinstance(data, HuggingFaceDataset) else {}
    if name in columns:
        return columns[name]
    if name == _LABEL and data.y_train.dtype == np.int64:
        return list(data.y_train.tolist())
    known = [*columns, *([_LABEL] if data.y_train.dtype == np.int64 and _LABEL not in columns else [])]
    raise ValueError(
        f"{_OPTIONS}.partition_by={name}: the data have no such column; there are {', '.join(known) or 'none'}."
    )


def _parts(
    kind: type[Any], chosen: Mapping[str, Any], column: str | None, values: Any, rows: int, num_clients: int
) -> list[IntArray]:
    import datasets

    named = {} if column is None else {column: values}
    shares_out = kind(**chosen)
    shares_out.dataset = datasets.Dataset.from_dict({_ROW: range(rows), **named})
    if (number := shares_out.num_partitions) < num_clients:
        raise _TooFew(f"num_clients={num_clients}: flwr:{kind.__name__} makes {number} partitions; use that many.")
    loaded = (shares_out.load_partition(client) for client in range(num_clients))
    return [np.array(part[_ROW][:], dtype=np.int64) for part in loaded]


def _test_rows(data: Dataset, rows: IntArray, rng: np.random.Generator) -> IntArray:
    size = max(LEAST_TEST, round(len(rows) * len(data.y_test) / len(data.y_train)))
    if data.y_train.dtype != np.int64:
        return np.sort(rng.choice(len(data.y_test), size=min(size, len(data.y_test)), replace=False))
    cells = [np.flatnonzero(data.y_test == label) for label in range(data.num_outputs)]
    return draw_test(size, np.bincount(data.y_train[rows], minlength=data.num_outputs), cells, rng)
