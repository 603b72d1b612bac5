"""One thread for linear algebra: with more, sums differ in their last bits from run to run."""

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


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # Searching the loaded libraries takes milliseconds: once is enough.
