"""A task: data, their partition over clients, a model and a loss, from one plain description."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from task.losses import check_loss, per_sample_losses, targets_of
from task.partitions.shard import Shard, check_shards
from task.randomness import Purpose, generator
from task.registry import check_options, resolve


@dataclass(frozen=True)
class TaskSpec:
    """All that a task depends on, in plain values: it travels to clients as JSON.

    Parameters
    ----------
    data, partition, model
        Registered names or import paths ``package.module:function``.
    loss
        See `task.losses.per_sample_losses`.
    num_clients, num_clusters
        Clients, and true clusters among them.
    seed
        Seed of the run: draws synthetic data and the partition.
    data_dir
        Folder of downloaded data sets.
    data_options, partition_options, model_options
        Options of the three functions.
    """

    data: str
    partition: str
    model: str
    loss: str
    num_clients: int
    num_clusters: int
    seed: int
    data_dir: str
    data_options: Mapping[str, Any] = field(default_factory=dict)
    partition_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the description as JSON with sorted keys: equal tasks give equal texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "TaskSpec":
        """Read what `to_json` wrote.

        Raises
        ------
        ValueError
            If the text is no JSON object, a key is unknown or missing, or a value has the wrong type.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the task's description is no JSON ({error}): {text[:80]!r}") from error
        if not isinstance(values, dict):
            raise ValueError(f"the task's description must be a JSON object, but is {text[:80]!r}")
        expected = {f.name: f.type for f in fields(cls)}
        unknown, missing = sorted(set(values) - set(expected)), sorted(set(expected) - set(values))
        if unknown or missing:
            raise ValueError(
                f"the task's description does not fit: unknown keys {unknown}, missing keys {missing}. "
                f"Server and clients must run the same version of the code."
            )
        types: dict[Any, type] = {str: str, int: int, Mapping[str, Any]: dict}
        for name, annotation in expected.items():
            kind = types[annotation]
            if not isinstance(values[name], kind) or isinstance(values[name], bool):
                raise ValueError(f"the task's {name}={values[name]!r} must be of type {kind.__name__}.")
        return cls(**values)


@dataclass(frozen=True)
class ClientData:
    """One client's data, ready for the model.

    Parameters
    ----------
    x_train, x_test
        float32 (n, *input_shape); images lie channels last in memory, where a CPU's convolutions are faster.
    y_train, y_test
        int64 or float32 (n,)
    cluster
        True cluster.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    cluster: int


class Task:
    """Data, partition, model and loss behind a `TaskSpec`; each is made when it is first needed, once.

    Parameters
    ----------
    spec
        The description.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self._clients: dict[int, ClientData] = {}

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return self.spec.num_clients

    @cached_property
    def data(self) -> Dataset:
        """The whole data set."""
        spec = self.spec
        function = resolve("data", spec.data)
        check_options(function, spec.data_options, "data", spec.data)
        folder = Path(spec.data_dir).expanduser() if spec.data_dir else None
        data = function(folder, spec.seed, spec.num_clusters, **spec.data_options)
        if not isinstance(data, Dataset):
            raise ValueError(f"data {spec.data!r} returned a {type(data).__name__}: return a task.data.Dataset.")
        return data

    @cached_property
    def shards(self) -> list[Shard]:
        """The shard of each client; position = partition id."""
        spec = self.spec
        function = resolve("partition", spec.partition)
        check_options(function, spec.partition_options, "partition", spec.partition)
        rng = generator(spec.seed, 0, Purpose.PARTITION)
        shards = function(self.data, spec.num_clients, spec.num_clusters, rng, **spec.partition_options)
        check_shards(shards, self.data, spec.num_clients)
        return list(shards)

    def cluster_of(self, partition_id: int) -> int:
        """Return the true cluster of a client.

        Raises
        ------
        ValueError
            If there is no such client.
        """
        return self._shard(partition_id).cluster

    def _shard(self, partition_id: int) -> Shard:
        if not 0 <= partition_id < self.num_clients:
            raise ValueError(
                f"partition id {partition_id} does not exist: the task has num_clients={self.num_clients}, "
                f"ids 0 to {self.num_clients - 1}."
            )
        return self.shards[partition_id]

    def client(self, partition_id: int) -> ClientData:
        """Return the data of one client; kept, so that the next call costs nothing.

        Raises
        ------
        ValueError
            If there is no such client.
        """
        if partition_id not in self._clients:
            shard = self._shard(partition_id)
            data = self.data
            x_train, y_train = _part(shard, data.x_train, data.y_train, shard.train)
            x_test, y_test = _part(shard, data.x_test, data.y_test, shard.test)
            self._clients[partition_id] = ClientData(x_train, y_train, x_test, y_test, shard.cluster)
        return self._clients[partition_id]

    def build_model(self) -> Module:
        """Build a fresh module for this task's inputs and outputs.

        It is initialised by torch's global generator; see `task.initial.initial_models` for seeded ones.
        """
        spec = self.spec
        function = resolve("model", spec.model)
        check_options(function, spec.model_options, "model", spec.model)
        module = function(self.data.input_shape, self.data.num_outputs, **spec.model_options)
        if not isinstance(module, Module):
            raise ValueError(f"model {spec.model!r} returned a {type(module).__name__}: return a torch.nn.Module.")
        if len(self.data.input_shape) == 3:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        return module

    def check(self) -> None:
        """Raise ValueError for everything that can be wrong, before any training.

        That is: unknown names, wrong options, missing files, too many clients, a loss that does not fit.
        """
        spec = self.spec
        check_loss(spec.loss)
        for kind, name, options in (
            ("data", spec.data, spec.data_options),
            ("partition", spec.partition, spec.partition_options),
            ("model", spec.model, spec.model_options),
        ):
            check_options(resolve(kind, name), options, kind, name)  # type: ignore[arg-type]  # literals above
        if spec.num_clients < 1:
            raise ValueError(f"num_clients={spec.num_clients} must be at least 1.")
        for partition_id in range(spec.num_clients):
            self.cluster_of(partition_id)
        self._check_fit()

    def _check_fit(self) -> None:
        """Send one sample through model and loss."""
        spec, client = self.spec, self.client(0)
        classes = not client.y_train.is_floating_point()
        if spec.loss == "cross_entropy" and not classes:
            raise ValueError(f"task.loss=cross_entropy needs class labels, but data {spec.data!r} has values.")
        if spec.loss == "squared_error" and classes:
            raise ValueError(f"task.loss=squared_error needs values, but data {spec.data!r} has class labels.")
        module = self.build_model().eval()
        x, y = client.x_train[:2], client.y_train[:2]
        targets = targets_of(x, y, spec.loss)
        try:
            with torch.inference_mode():
                outputs = module(x)
                losses = per_sample_losses(outputs, targets, spec.loss)
        except (RuntimeError, IndexError, ValueError) as error:
            raise ValueError(
                f"model {spec.model!r} with loss {spec.loss!r} does not fit data {spec.data!r}, whose inputs "
                f"have shape {self.data.input_shape}: {error}"
            ) from error
        if losses.shape != (len(x),):
            raise ValueError(f"loss {spec.loss!r} gives shape {tuple(losses.shape)} for {len(x)} samples.")
        if classes and spec.loss == "cross_entropy" and outputs.shape[1] < self.data.num_outputs:
            raise ValueError(
                f"model {spec.model!r} has {outputs.shape[1]} outputs, but data {spec.data!r} has "
                f"{self.data.num_outputs} classes."
            )


def _part(shard: Shard, x: FloatArray, y: TargetArray, rows: IntArray) -> tuple[Tensor, Tensor]:
    """Return a client's rows, transformed, as tensors."""
    x_part, y_part = x[rows], y[rows]
    if shard.transform is not None:
        x_part, y_part = shard.transform(x_part, y_part)
    inputs = torch.from_numpy(x_part)
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs, torch.from_numpy(y_part)
