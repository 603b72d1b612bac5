"""`train.custom`, `evaluate.custom`, `query.custom`: the handler whose import path the message names."""

from collections.abc import Callable
from functools import cache
from typing import Any

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.node import consent_of
from florets.task.imported import check_handler, imported, module_of
from florets.task.wire import kinds


def custom(client: Client) -> RecordDict:
    """Let the handler that the message names answer it; raise ValueError where it names none that can."""
    path = client.config.get(kinds.HANDLER)
    if not isinstance(path, str):
        raise ValueError(f"the message's config has no {kinds.HANDLER!r}: name one as package.module:function")
    if kinds.is_built_in(path):
        content = _built_in(path)(client=client)
    else:
        from florets.client_app.authors_client import Client as AuthorsClient

        content = handler_of(client, path)(client=AuthorsClient(client.message, client.context))
    if not isinstance(content, RecordDict):
        raise ValueError(f"handler {path} returned a {type(content).__name__}, not a flwr.app.RecordDict")
    return content


def handler_of(client: Client, path: str) -> Callable[..., Any]:
    """Return the handler of an import path, which this node's owner must have allowed; else raise ValueError."""
    module_of(f"{kinds.HANDLER}={path!r}", path)
    consent_of(client.context).require(kinds.HANDLER, path)
    return _handler(path)


@cache
def _built_in(path: str) -> Callable[..., Any]:
    """Return a handler of this project's algorithms, whose code every node has: no consent is needed."""
    function = _handler(path)
    if getattr(function, "__module__", None) != path.partition(":")[0]:
        raise ValueError(f"{kinds.HANDLER}={path!r}: is no client handler of this project")
    return function


def _handler(path: str) -> Callable[..., Any]:
    what = f"{kinds.HANDLER}={path!r}"
    function = imported(what, path)
    check_handler(what, function)
    return function
