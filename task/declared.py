"""Decorators for an author's functions: client handlers, data sets, partitions and models.

Each checks the function's parameters where it is written, and returns it as it is.
"""

from typing import TypeVar

from florets.task.imported import Function, other_parameters
from florets.task.registry import GIVEN, Kind

F = TypeVar("F", bound=Function)

CLIENT = "client"
"""Name of a handler's one parameter."""


def handler(function: F) -> F:
    """Declare what clients do when a strategy asks them by it: ``f(client)``, which returns ``client.reply(...)``.

    Raises
    ------
    ValueError
        If its one parameter has another name, or it needs more.
    """
    check_handler(f"handler {function.__qualname__}", function)
    return function


def check_handler(what: str, function: Function) -> None:
    """Raise ValueError where a function is no handler; `what` names it."""
    other_parameters(what, function, [CLIENT], options=False)


def dataset(function: F) -> F:
    """Declare a data set: ``f(data_dir, seed, num_clusters, **options)``, which returns a `florets.Dataset`.

    Raises
    ------
    ValueError
        If it does not have these parameters under these names.
    """
    return _declared("data", function)


def partition(function: F) -> F:
    """Declare a partition: ``f(data, num_clients, num_clusters, rng, **options)``, which returns `florets.Shard`s.

    Raises
    ------
    ValueError
        If it does not have these parameters under these names.
    """
    return _declared("partition", function)


def model(function: F) -> F:
    """Declare a model: ``f(input_shape, num_outputs, **options)``, which returns a `torch.nn.Module`.

    Raises
    ------
    ValueError
        If it does not have these parameters under these names.
    """
    return _declared("model", function)


def _declared(kind: Kind, function: F) -> F:
    other_parameters(f"{kind} {function.__qualname__}", function, GIVEN[kind])
    return function
