"""`train.custom`, `evaluate.custom`, `query.custom`: a handler that the strategy brings, named by its import path."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.task.operators import with_torchvision
from florets.task.wire import kinds

ALLOWED = "allow-handlers"
"""Key of the node config that names the packages whose handlers a real node runs."""


def custom(client: Client) -> RecordDict:
    """Let the handler that the message names answer it.

    Raises
    ------
    ValueError
        If it names none, one that this node does not allow or cannot import, or one that returns no RecordDict.
    """
    path = client.config.get(kinds.HANDLER)
    if not isinstance(path, str):
        raise ValueError(f"the message's config has no {kinds.HANDLER!r}: name one as package.module:function")
    check_allowed(client, path)
    content = _handler(path)(client)
    if not isinstance(content, RecordDict):
        raise ValueError(f"handler {path} returned a {type(content).__name__}, not a flwr.app.RecordDict")
    return content


def check_allowed(client: Client, path: str) -> None:
    """Refuse a handler whose package the owner of this node has not allowed; a simulation runs all.

    A handler is code that the server names: on a real node it could read whatever the node's process can.

    Raises
    ------
    ValueError
        If the path has another form than package.module:function, or the package is not allowed here.
    """
    module, colon, function = path.partition(":")
    if not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError(f"handler {path!r}: the form is package.module:function")
    if client.is_simulated:
        return
    allowed = [name.strip() for name in str(client.context.node_config.get(ALLOWED, "")).split(",")]
    if not any(name and (module == name or module.startswith(f"{name}.")) for name in allowed):
        package = module.split(".")[0]
        raise ValueError(
            f"this node does not allow the handler {path}: if you trust its package, add {ALLOWED}='{package}' to "
            "the SuperNode's --node-config"
        )


@cache
def _handler(path: str) -> Callable[[Client], Any]:
    module_name, _, function_name = path.partition(":")
    try:
        module = with_torchvision(lambda: importlib.import_module(module_name))
    except Exception as error:  # a module of somebody else's may raise anything while it is imported
        raise ValueError(
            f"handler {path}: module {module_name!r} cannot be imported here ({type(error).__name__}: {error})"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"handler {path}: module {module_name!r} has no function {function_name!r}")
    return function  # type: ignore[no-any-return]  # getattr knows no type; callable() was checked
