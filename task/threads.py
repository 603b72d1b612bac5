"""One thread for linear algebra: with more, sums differ in their last bits from run to run."""

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it ships no types


def one_thread() -> Any:
    """Return a context manager that holds BLAS and OpenMP to one thread."""
    return _threads().limit(limits=1)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # Searching the loaded libraries takes milliseconds: once is enough.
