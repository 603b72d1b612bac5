"""Client handlers of a strategy's own, given as functions or by their import paths."""

from collections.abc import Callable, Iterable
from typing import Any

from florets.task.given import hold

_PATH = "_florets_path"

Handler = str | Callable[..., Any]


def handler_path(handler: Handler) -> str:
    """Return the import path ``package.module:function`` of a handler; one that is a path already stays as it is.

    One that is written in a notebook or a script has the path of the copy that other processes are handed.

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
            f"client handler {handler!r}: clients import it by its name; write a function at the top level of a "
            f"module"
        )
    if module != "__main__":
        return f"{module}:{name}"
    # A notebook's, or a script's: other processes cannot import it, and are handed a copy. The copy knows its path.
    if _PATH not in vars(handler):
        setattr(handler, _PATH, hold(handler, name))
    return str(getattr(handler, _PATH))


def handler_paths(handlers: Iterable[Handler]) -> tuple[str, ...]:
    """Return the import paths of handlers, each once."""
    return tuple(dict.fromkeys(map(handler_path, handlers)))
