"""The common model beside saved groups, among the named arrays of a run's file."""

from typing import Any

from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from florets.strategies.base.models import Models

Arrays = dict[str, NDArray[Any]]

_PREFIX = "common/"


def pack_common(models: Models) -> Arrays:
    """Return the arrays of the one model."""
    return {f"{_PREFIX}{name}": array.numpy() for name, array in models.one(0).items()}


def unpack_common(arrays: Arrays) -> Models:
    """Return the model that `pack_common` wrote; raise ValueError where there is none."""
    common = {name.removeprefix(_PREFIX): Array(v) for name, v in arrays.items() if name.startswith(_PREFIX)}
    if not common:
        raise ValueError("the common model is missing")
    return Models(ArrayRecord(common))
