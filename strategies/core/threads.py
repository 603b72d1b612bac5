"""One thread for the linear algebra libraries: equal inputs then give equal sums to the last bit."""

import sys
from functools import cache

# Imported for what it loads: a controller knows the libraries that are there when it is made.
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it ships no types


@cache
def _controller(with_sklearn: bool) -> ThreadpoolController:
    # Searching the loaded libraries takes milliseconds: once is enough, and once more for the OpenMP that comes with
    # scikit-learn, whose import takes a second and is left to whoever uses it.
    return ThreadpoolController()


def one_thread() -> ThreadpoolController:
    """Return a context in which BLAS and OpenMP work with one thread: of the libraries that are loaded by now."""
    return _controller("sklearn.utils" in sys.modules).limit(limits=1)
