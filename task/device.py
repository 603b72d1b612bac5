"""Devices that models are trained and tested on, by name; one thread for linear algebra; memory of this process."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]  # it ships no types

if TYPE_CHECKING:
    import torch


def one_thread() -> Any:
    """Return a context manager that holds BLAS and OpenMP to one thread."""
    return _threads("scipy.linalg" in sys.modules, "sklearn.utils" in sys.modules).limit(limits=1)


def one_thread_for_good() -> None:
    """Hold the BLAS libraries that are loaded by now to one thread; those loaded later go by `OMP_NUM_THREADS`."""
    threadpool_limits(limits=1, user_api="blas")


@contextmanager
def one_thread_within() -> Iterator[None]:
    """Compute with one thread, PyTorch too, and give the caller its numbers of threads back."""
    import torch

    before = torch.get_num_threads()
    with threadpool_limits(limits=1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@cache
def _threads(*_are_loaded: bool) -> ThreadpoolController:
    # Searching the loaded libraries takes milliseconds: once is enough for each that brings its own.
    return ThreadpoolController()


_DEVICES = "cpu, cuda, cuda:<number>, mps or auto"


def find_device(name: str) -> "torch.device":
    """Return the device of a name, such as cpu or cuda:1; auto: a GPU where this machine has one."""
    if name == "cpu":
        return _cpu()
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name} is not a device; use {_DEVICES}") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device={name} is none that florets computes on; use {_DEVICES}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.type == "cuda" and (device.index or 0) >= count) or (
        device.type == "mps" and not torch.backends.mps.is_available()
    ):
        raise ValueError(f"device={name}: PyTorch sees {count} CUDA devices here and none so named; use device=cpu")
    if device.type == "cuda":
        # Convolutions in float32, as the CPU and linear layers compute, not in TF32 with 10 bits.
        torch.backends.cudnn.allow_tf32 = False
    return device


@cache
def _cpu() -> "torch.device":
    import torch

    return torch.device("cpu")


_NEW_OBJECTS = 20_000
"""After so many new ones the young objects are looked through: 700 are those of a few dozen messages."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look through new objects more seldom within the block: an exchange's records are freed without a search."""
    before = gc.get_threshold()
    gc.freeze()
    # 0 is never.
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
