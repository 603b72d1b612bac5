"""Memory that one process writes and several read, and clients' data in it, read without a copy."""

import logging
import mmap
import os
import pickle
import tempfile
from dataclasses import dataclass, fields
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from florets.task.client_data import ClientData
from florets.task.task import Task, TaskSpec

_ALIGNED = 64
"""Bytes: where torch would put a tensor itself."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a shared file, in bytes."""

    start: int
    size: int


class SharedFile:
    """A file in memory without a name, so that nothing is left of it; who made it writes, others read."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _new_file() if descriptor is None else descriptor
        self._end = 0

    def append(self, data: bytes | memoryview) -> Place:
        """Write behind all that was written, and return where."""
        start = -(-self._end // _ALIGNED) * _ALIGNED
        self._end = start + len(data)
        written, view = 0, memoryview(data)
        # The system writes 2 GiB at most in one call.
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], start + written)
        return Place(start, len(data))

    @property
    def end(self) -> int:
        """Where the next thing is written, before it is aligned."""
        return self._end

    def shorten(self, end: int) -> None:
        """Forget, and give back to the system, all from `end` on."""
        self._end = end
        os.ftruncate(self._descriptor, end)

    def read(self, place: Place) -> bytes:
        """Return a copy of what stands at a place."""
        parts, start, left = [], place.start, place.size
        while left:
            parts.append(os.pread(self._descriptor, left, start))
            if not parts[-1]:
                raise ValueError(f"the shared file ends before {place}")
            start, left = start + len(parts[-1]), left - len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def mapped(self, end: int) -> mmap.mmap:
        """Return all up to `end` as memory of this process: shared as long as it does not write there."""
        return mmap.mmap(self._descriptor, end, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Close it in this process; what is mapped stays."""
        os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        # As multiprocessing hands over its own pipes.
        return _received, (reduction.DupFd(self._descriptor),)


def _received(handle: Any) -> SharedFile:
    return SharedFile(handle.detach())


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("florets")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


log = logging.getLogger("florets")

_Stored = tuple[Place, str, tuple[int, ...], tuple[int, ...]]
"""A tensor: its memory, dtype, shape and strides."""


@dataclass(frozen=True)
class SharedClients:
    """The clients of a task that stand in a shared file, up to `end`."""

    spec: TaskSpec
    input_shape: tuple[int, ...]
    num_outputs: int
    places: dict[int, Place]
    truth: dict[int, tuple[int, int]]
    end: int


def share_clients(task: Task, file: SharedFile) -> SharedClients:
    """Write all clients' data into a file; this process keeps none of them."""
    places, truth = {}, {}
    for number in range(task.num_clients):
        try:
            data = task.build_client(number)
        # A partition's transform may be anybody's code.
        except Exception:
            log.debug("the data of client %d are not shared", number, exc_info=True)
            continue
        places[number] = file.append(pickle.dumps(_stored(data, file)))
        truth[number] = task.cluster_of(number), task.num_examples_of(number)
    return SharedClients(task.spec, task.input_shape, task.num_outputs, places, truth, file.end)


class SharedTask(Task):
    """A task whose clients' data stand in a shared file; the data set itself is loaded if it is asked for."""

    def __init__(self, clients: SharedClients, file: SharedFile) -> None:
        super().__init__(clients.spec)
        self._shared, self._file = clients, file
        self._memory = file.mapped(clients.end) if clients.end else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self._shared.input_shape

    @property
    def num_outputs(self) -> int:
        """Number of outputs that a model needs."""
        return self._shared.num_outputs

    def cluster_of(self, partition_id: int, server_round: int = 0) -> int:
        """Return the true cluster of a client, the same in all rounds."""
        known = self._shared.truth.get(partition_id)
        return super().cluster_of(partition_id, server_round) if known is None else known[0]

    def num_examples_of(self, partition_id: int, server_round: int = 0) -> int:
        """Return the number of a client's training samples, the same in all rounds."""
        known = self._shared.truth.get(partition_id)
        return super().num_examples_of(partition_id, server_round) if known is None else known[1]

    def build_client(self, partition_id: int, server_round: int = 0) -> ClientData:
        """Return the data of one client, the same in all rounds: its tensors are views of the shared memory."""
        place = self._shared.places.get(partition_id)
        if place is None or self._memory is None:
            return super().build_client(partition_id, server_round)
        stored = pickle.loads(self._memory[place.start : place.start + place.size])
        return _with_tensors(stored, self._memory)


def _stored(data: ClientData, file: SharedFile) -> dict[str, Any]:
    """Return a client's data with its tensors in the file."""
    stored: dict[str, Any] = {}
    for name in (field.name for field in fields(data)):
        value = getattr(data, name)
        # Memory of no bytes cannot be mapped: tensors without values stay as they are.
        stored[name] = _write(value, file) if isinstance(value, Tensor) and value.numel() else value
    return stored


def _write(tensor: Tensor, file: SharedFile) -> _Stored:
    # With its strides, gaps included: the order in memory decides which routine computes, and so the last bits.
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    span = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    flat = tensor.as_strided((span,), (1,)).numpy()
    return file.append(flat.data.cast("B")), str(flat.dtype), shape, strides


def _with_tensors(stored: dict[str, Any], memory: mmap.mmap) -> ClientData:
    values: dict[str, Any] = {
        name: _read(value, memory) if isinstance(value, tuple) else value for name, value in stored.items()
    }
    return ClientData(**values)


def _read(stored: _Stored, memory: mmap.mmap) -> Tensor:
    place, dtype, shape, strides = stored
    kind = np.dtype(dtype)
    flat = np.frombuffer(memory, dtype=kind, count=place.size // kind.itemsize, offset=place.start)
    return torch.from_numpy(flat).as_strided(shape, strides)
