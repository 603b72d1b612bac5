"""Client handlers of a strategy's own, given as functions or by their import paths."""

from collections.abc import Callable, Iterable
from typing import Any

Handler = str | Callable[..., Any]


def handler_path(handler: Handler) -> str:
    """Return the import path ``package.module:function`` of a handler; one that is a path already stays as it is.

    Raises
    ------
    ValueError
        If a function is not one that a client can import: it must stand at the top of its module.
    """
    if isinstance(handler, str):
        return handler
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", "")
    if not module or not name.isidentifier():
        raise ValueError(
            f"client handler {handler!r}: clients import it by its name; write a function at the top of a module"
        )
    return f"{module}:{name}"


def handler_paths(handlers: Iterable[Handler]) -> tuple[str, ...]:
    """Return the import paths of handlers, each once."""
    return tuple(dict.fromkeys(map(handler_path, handlers)))
