"""Devices that models are trained and tested on, by name; one thread for linear algebra; memory of this process.

With more threads, sums differ in their last bits from run to run.
"""

import ctypes
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
    """Hold the BLAS libraries that are loaded by now to one thread for the rest of the process.

    Those that are loaded later go by `OMP_NUM_THREADS`.
    """
    threadpool_limits(limits=1, user_api="blas")


@contextmanager
def one_thread_within() -> Iterator[None]:
    """Compute with one thread, PyTorch too, and give the caller its numbers of threads back.

    For a function that is called in a process of somebody else's, such as a notebook.
    """
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


_TYPES = ("cpu", "cuda", "mps")


def find_device(name: str) -> "torch.device":
    """Return the device of a name, such as cpu or cuda:1; auto: a GPU where this machine has one.

    Raises
    ------
    ValueError
        If this machine does not have it.
    """
    if name == "cpu":
        return _cpu()
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name} is not a device; use cpu, cuda, cuda:<number>, mps or auto") from error
    if device.type not in _TYPES:
        raise ValueError(
            f"device={name} is not one that florets computes on; use cpu, cuda, cuda:<number>, mps or auto"
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name}, but this machine's PyTorch sees no CUDA device; use device=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={name}, but this machine's CUDA devices are numbered from 0 to {torch.cuda.device_count() - 1}; "
            "use one of these, or device=cpu"
        )
    if device.type == "mps" and not _has_mps():
        raise ValueError(f"device={name}, but this machine's PyTorch sees no Apple GPU; use device=cpu")
    if device.type == "cuda":
        _in_float32()
    return device


def _in_float32() -> None:
    """Compute convolutions on NVIDIA's GPUs in float32, as the CPU and linear layers do, not in TF32 with 10 bits."""
    import torch

    torch.backends.cudnn.allow_tf32 = False


def _has_mps() -> bool:
    import torch

    return torch.backends.mps.is_available()


@cache
def _cpu() -> "torch.device":
    import torch

    return torch.device("cpu")


_NEW_OBJECTS = 20_000
"""After so many new ones the young objects are looked through: 700 are those of a few dozen messages."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Leave alone, within the block, what there is by now, and look through new objects more seldom.

    An exchange with many clients makes tens of thousands of records, which are freed without any search: the search
    found nothing in them, and took up to a quarter of a round of small models.
    """
    before = gc.get_threshold()
    gc.freeze()
    # 0 is never.
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


_MUCH = 100_000_000
"""Bytes of replies from which it is worth its 0.02 to 0.04 s a round."""

# The C library of Linux alone has it, and not each of them.
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back_freed(num_bytes: int) -> None:
    """Give what this process has freed back to the system, before a step on so many bytes; for a few do nothing.

    What clients' training in this process has freed lies with the C library in pieces of which few fit an average of
    large models: of ResNet-18 and 10 clients the peak was 2.6 GB, and is 2.2 GB since.
    """
    if _trim is not None and num_bytes >= _MUCH:
        _trim(0)
