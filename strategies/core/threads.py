"""One thread for the linear algebra libraries: equal inputs then give equal sums to the last bit."""

from functools import cache

# Imported for what it loads: a controller knows the libraries that are there when it is made.
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it ships no types


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # Searching the loaded libraries takes milliseconds: once is enough.


def one_thread() -> ThreadpoolController:
    """Return a context in which BLAS and OpenMP work with one thread."""
    return _controller().limit(limits=1)
