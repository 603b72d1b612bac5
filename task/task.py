"""A task: data, their partition over clients, a model and a loss, from one plain description."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module, TransformerEncoderLayer
from torch.nn.parameter import is_lazy

from florets.task.adapters import adapt
from florets.task.client_data import ClientData, with_validation
from florets.task.data.dataset import Dataset, Inputs, IntArray, TargetArray
from florets.task.drift import shards_by_version
from florets.task.layers import at_home, body_and_head, keep_at_home, load_at_home
from florets.task.partitions.own import OWN, Agreement
from florets.task.partitions.shard import Shard, check_shards
from florets.task.randomness import Purpose, generator
from florets.task.registry import call, check_options, resolve
from florets.task.settings import Adapter, Drift, of_values
from florets.task.spec import DECLARED, PREPARED, TaskSpec
from florets.task.training.losses import check_loss
from florets.task.training.model_check import check_model
from florets.task.training.modules import torch_random

if TYPE_CHECKING:
    from florets.task.data.tables.description import Description

log = logging.getLogger("florets")

__all__ = ["ClientData", "Task", "TaskSpec"]

_RANGES = {"poisson": (0, math.inf), "binary_cross_entropy": (0, 1)}
"""Least and largest target of a loss."""
MOST_KEPT = 20_000
"""Clients whose data are kept once they are made."""


def _is_table(folder: Path | None) -> bool:
    from florets.task.data.own import find_files

    return find_files(folder).is_table


class Task:
    """Data, partition, model and loss behind a `TaskSpec`, each made once; `client` is a number."""

    def __init__(self, spec: TaskSpec, client: int = 0, frozen: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.spec, self._number, self.frozen = spec, client, frozen
        self._clients: dict[int, tuple[int, ClientData]] = {}
        self._cluster_tests: tuple[int, dict[int, tuple[Tensor, Tensor]]] | None = None

    @property
    def stratifies(self) -> bool:
        """Whether splits of a node's own data keep classes, or the targets' order."""
        return bool(self.spec.table.get(DECLARED, {}).get("stratify", True))

    @property
    def is_own(self) -> bool:
        """Whether each node has a data set of its own: this is then one node's task, or a server's without any."""
        return self.spec.partition == OWN

    @property
    def num_clients(self) -> int:
        """Number of clients whose data can be asked for; a node's own data are its only client's."""
        return 1 if self.is_own else self.spec.num_clients

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; a server without data has it from the options."""
        return self._agreement.input_shape if self.is_own else self.data.input_shape

    @property
    def num_outputs(self) -> int:
        """Number of outputs that a model needs."""
        return self._agreement.num_outputs if self.is_own else self.data.num_outputs

    @cached_property
    def _agreement(self) -> Agreement:
        options = check_options(resolve("partition", OWN), self.spec.partition_options, "partition", OWN)
        return Agreement(tuple(options["input_shape"]), options["num_outputs"], options.get("num_targets", 0))

    @cached_property
    def data(self) -> Dataset:
        """The whole data set."""
        spec = self.spec
        folder = Path(spec.data_dir).expanduser() if spec.data_dir else None
        if self.is_own and spec.data == OWN and PREPARED not in spec.table and _is_table(folder):
            # By itself it would number classes and standardise in its own way.
            raise ValueError("the run does not say how tables are prepared: declare task.table.preprocessing.")
        options = dict(spec.data_options)
        if spec.data == OWN:
            options |= {"table": spec.table, "client": self._number}
        given = {"data_dir": folder, "seed": spec.seed, "num_clusters": spec.num_clusters}
        data = call("data", spec.data, given, options)
        if not isinstance(data, Dataset):
            raise ValueError(f"data {spec.data!r} returned a {type(data).__name__}: return a task.data.Dataset.")
        return data

    @cached_property
    def description(self) -> "Description":
        """What a node says of its own data before training."""
        from florets.task.data.own import describe

        spec = self.spec
        options = check_options(resolve("data", OWN), spec.data_options, "data", OWN)
        return describe(Path(spec.data_dir).expanduser(), options, spec.table, spec.seed, self._number)

    @cached_property
    def shards(self) -> list[Shard]:
        """The shard of each client in round 1; position = partition id."""
        spec = self.spec
        given = {
            "data": self.data,
            "num_clients": self.num_clients,
            "num_clusters": spec.num_clusters,
            "rng": generator(spec.seed, 0, Purpose.PARTITION),
        }
        shards = call("partition", spec.partition, given, spec.partition_options)
        check_shards(shards, self.data, self.num_clients)
        return list(shards)

    @property
    def client_names(self) -> dict[int, str]:
        """Names of the clients by partition id, where the data say whose each sample is."""
        if self.spec.partition != "natural":
            return {}
        return {place: shard.name for place, shard in enumerate(self.shards) if shard.name}

    @cached_property
    def _drift(self) -> Drift:
        return Drift.of(self.spec.drift)

    @cached_property
    def _versions(self) -> list[list[Shard]]:
        # All is drawn at once: what cannot work shows before the first round.
        return shards_by_version(self._drift, self.shards, self.spec.seed)

    @property
    def drifts(self) -> bool:
        """Whether clients' data change from round to round."""
        return bool(self._drift.rounds)

    def version(self, server_round: int) -> int:
        """Return the number of changes until a round: in two rounds of one number all clients have the same data."""
        return sum(start <= server_round for start in self._drift.rounds)

    def shards_at(self, server_round: int) -> list[Shard]:
        """Return the shard of each client in a round; 0 stands for the time before the first one."""
        return self._versions[self.version(server_round)]

    def cluster_of(self, partition_id: int, server_round: int = 0) -> int:
        """Return the true cluster of a client in a round."""
        return self._shard(partition_id, server_round).cluster

    def num_examples_of(self, partition_id: int, server_round: int = 0) -> int:
        """Return the number of a client's training samples in a round; raise ValueError without such a client."""
        return sum(len(piece.train) for piece in self._shard(partition_id, server_round).pieces)

    @property
    def counts_are_known(self) -> bool:
        """Whether a client's number of training samples is known without its data, of which there are too many."""
        return self.num_clients > MOST_KEPT and not self.spec.validation_fraction

    def _shard(self, partition_id: int, server_round: int) -> Shard:
        if not 0 <= partition_id < self.num_clients:
            raise ValueError(f"partition id {partition_id} does not exist: there are 0 to {self.num_clients - 1}.")
        return self.shards_at(server_round)[partition_id]

    def client(self, partition_id: int, server_round: int = 0) -> ClientData:
        """Return the data of one client in a round; those of `MOST_KEPT` clients are kept until they change."""
        version = self.version(server_round)
        kept = self._clients.get(partition_id)
        if kept is not None and kept[0] == version:
            return kept[1]
        data = self.build_client(partition_id, server_round)
        if kept is not None or len(self._clients) < MOST_KEPT:
            self._clients[partition_id] = version, data
        return data

    def build_client(self, partition_id: int, server_round: int = 0) -> ClientData:
        """Return the data of one client in a round, made anew; `client` keeps them."""
        shard = self._shard(partition_id, server_round)
        (x_train, y_train), (x_test, y_test) = (_samples(self.data, shard.pieces, part) for part in ("train", "test"))
        if self.is_own:
            # Elsewhere the server has seen the data already.
            self._check_targets(y_train)
        rows, numbers = np.concatenate([piece.train for piece in shard.pieces]), self.data.subjects_train
        subjects = None if numbers is None else torch.from_numpy(numbers[rows])
        whole = ClientData(x_train, y_train, x_test, y_test, shard.cluster, subjects=subjects)
        if fraction := self.spec.validation_fraction:
            client = self._number if self.is_own else partition_id
            rng = generator(self.spec.seed, 0, Purpose.VALIDATION, client)
            whole = with_validation(whole, fraction, rng, self.is_own and self.stratifies)
        return whole

    def cluster_tests_at(self, server_round: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Return each true cluster's test data in a round: those of all its clients, each sample once."""
        version = self.version(server_round)
        if self._cluster_tests is None or self._cluster_tests[0] != version:
            by_cluster: dict[int, list[Shard]] = {}
            for piece in (piece for shard in self.shards_at(server_round) for piece in shard.pieces):
                by_cluster.setdefault(piece.cluster, []).append(piece)
            unions = {cluster: self._union(by_cluster[cluster]) for cluster in sorted(by_cluster)}
            self._cluster_tests = version, unions
        return self._cluster_tests[1]

    def _union(self, shards: list[Shard]) -> tuple[Tensor, Tensor]:
        """Each sample counts once for each different thing that is done to it."""
        transforms = {id(shard.transform): shard.transform for shard in shards if len(shard.test)}
        parts = []
        for name, transform in transforms.items():
            rows = np.unique(np.concatenate([shard.test for shard in shards if id(shard.transform) == name]))
            parts.append(Shard(shards[0].cluster, rows, rows, transform))
        return _samples(self.data, parts, "test")

    def build_model(self) -> Module:
        """Build a fresh module for this task's inputs and outputs, initialised by torch's global generator."""
        spec = self.spec
        given = {"input_shape": self.input_shape, "num_outputs": self.num_outputs}
        module = call("model", spec.model, given, spec.model_options)
        if not isinstance(module, Module):
            raise ValueError(f"model {spec.model!r} returned a {type(module).__name__}: return a torch.nn.Module.")
        if any(map(is_lazy, chain(module.parameters(), module.buffers()))):
            raise ValueError(f"model {spec.model!r} has lazy layers: give them their sizes, by input_shape.")
        if spec.adapter:
            adapt(module, Adapter.of(spec.adapter))
        if len(self.input_shape) == 3:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        keep_at_home(module)
        if at_home(module) and any(isinstance(part, TransformerEncoderLayer) for part in module.modules()):
            # In eval mode its faster pass computes with its layers' weights itself, as if they had no adapters.
            torch.backends.mha.set_fastpath_enabled(False)
        return module

    def module_to_load(self) -> Module:
        """Build a module whose parameters are to be loaded; what else it has or draws is the same everywhere."""
        with torch_random(generator(self.spec.seed, 0, Purpose.INITIAL_MODEL)):
            module = self.build_model()
        if self.frozen is not None:
            load_at_home(module, self.frozen)
        return module

    def body_and_head(self, module: Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the name prefixes of the body and of the head of this task's model; see `florets.task.layers`."""
        return body_and_head(module, self.spec.head_layers)

    def check(self) -> None:
        """Raise ValueError for everything that can be wrong, before any training."""
        spec = self.spec
        check_loss(spec.loss)
        for kind, name, options in (
            ("data", spec.data, spec.data_options),
            ("partition", spec.partition, spec.partition_options),
            ("model", spec.model, spec.model_options),
        ):
            check_options(resolve(kind, name), options, kind, name)  # type: ignore[arg-type]  # literals above
        # Nodes check their own data when they introduce themselves.
        self._check_fit(*self.two_examples)

    @property
    def two_examples(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of two samples; of nodes with data of their own zeros of their form."""
        spec = self.spec
        if not self.is_own:
            client = self.client(0)
            return client.x_train[:2], client.y_train[:2]
        columns = self._agreement.num_targets
        has_values = of_values(spec.loss) or bool(columns) or spec.data_options.get("regression") is True
        shape = (2, columns) if columns else (2,)
        return torch.zeros(2, *self.input_shape), torch.zeros(
            shape, dtype=torch.float32 if has_values else torch.int64
        )

    def _check_fit(self, x: Tensor, y: Tensor) -> None:
        """Check the model on two samples, forward and backward."""
        spec = self.spec
        self._check_targets(y)
        if spec.head_layers:
            self.body_and_head(self.module_to_load())
        if len(x) == 1:
            # Batch normalisation has no variance of one sample.
            x, y = torch.cat([x, x]), torch.cat([y, y])
        try:
            check_model(self.module_to_load(), x, y, spec.loss, self.num_outputs, spec.seed)
        except ValueError as error:
            raise ValueError(
                f"model {spec.model!r} with loss {spec.loss!r} does not fit data {spec.data!r}, whose inputs "
                f"have shape {self.input_shape}: {error}"
            ) from error

    def _check_targets(self, y: Tensor) -> None:
        spec, classes = self.spec, not y.is_floating_point()
        if spec.loss == "cross_entropy" and not classes:
            raise ValueError(f"task.loss=cross_entropy needs class labels, but data {spec.data!r} has values.")
        if of_values(spec.loss) and classes:
            more = "; give task.data_options.regression=true for arrays of integers" if spec.data == OWN else ""
            raise ValueError(f"task.loss={spec.loss} needs values, but data {spec.data!r} has class labels{more}.")
        low, high = _RANGES.get(spec.loss, (-math.inf, math.inf))
        if y.min() < low or y.max() > high:
            raise ValueError(f"task.loss={spec.loss} needs targets from {low:g} to {high:g}; correct those outside.")


def _part(shard: Shard, x: Inputs, y: TargetArray, rows: IntArray) -> tuple[Tensor, Tensor]:
    """Return a client's rows, transformed, as tensors."""
    x_part, y_part = x[rows], y[rows]
    if shard.transform is not None:
        x_part, y_part = shard.transform(x_part, y_part)
        if len(x_part) != len(rows) or len(y_part) != len(rows):
            raise ValueError(
                f"the transform of a shard returned {len(x_part)} inputs, {len(y_part)} targets for {len(rows)}."
            )
        x_part = np.asarray(x_part, dtype=np.float32)
    inputs = torch.from_numpy(x_part)
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs, torch.from_numpy(y_part)


def _samples(data: Dataset, shards: Sequence[Shard], part: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of the rows that some shards have of a part, ``train`` or ``test``."""
    x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
    parts = [_part(shard, x, y, rows) for shard in shards if len(rows := getattr(shard, part))]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def initial_models(
    build: Callable[[], Module], num_models: int, how: Literal["different", "same"], seed: int
) -> list[dict[str, NDArray[Any]]]:
    """Build K models and return their state dicts: ``different`` draws, which do not depend on K, or ``same`` ones.

    Source: CLoVE Alg. 1, l. 1.
    """
    states = []
    for k in range(num_models):
        with torch_random(generator(seed, 0, Purpose.INITIAL_MODEL, k if how == "different" else 0)):
            module = build()
        states.append({name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()})
    return states
