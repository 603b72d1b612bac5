"""One thread for linear algebra: with more, sums differ in their last bits from run to run."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]  # it ships no types


def one_thread() -> Any:
    """Return a context manager that holds BLAS and OpenMP to one thread."""
    return _threads().limit(limits=1)


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
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # Searching the loaded libraries takes milliseconds: once is enough.
