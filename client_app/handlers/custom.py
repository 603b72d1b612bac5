"""`train.custom`, `evaluate.custom`, `query.custom`: a handler that the strategy brings, named by its import path."""

from collections.abc import Callable
from typing import Any

from flwr.app import RecordDict

from florets.client_app.authors_client import Client as AuthorsClient
from florets.client_app.client import Client
from florets.client_app.session import consent_of
from florets.task.declared import check_handler
from florets.task.imported import imported, module_of
from florets.task.wire import kinds


def custom(client: Client) -> RecordDict:
    """Let the handler that the message names answer it.

    Raises
    ------
    ValueError
        If it names none, one that this node does not allow or cannot import, one whose parameter has another name, or
        one that returns no RecordDict.
    """
    path = client.config.get(kinds.HANDLER)
    if not isinstance(path, str):
        raise ValueError(f"the message's config has no {kinds.HANDLER!r}: name one as package.module:function")
    content = handler_of(client, path)(client=AuthorsClient(client))
    if not isinstance(content, RecordDict):
        raise ValueError(f"handler {path} returned a {type(content).__name__}, not a flwr.app.RecordDict")
    return content


def handler_of(client: Client, path: str) -> Callable[..., Any]:
    """Return the handler of an import path, which the owner of this node must have allowed; a simulation runs all.

    Raises
    ------
    ValueError
        If the path has another form than package.module:function, the package is not allowed here, or the path leads
        to no function of one parameter `client`.
    """
    module_of(f"{kinds.HANDLER}={path!r}", path)
    consent_of(client.context).require(kinds.HANDLER, path)
    what = f"{kinds.HANDLER}={path!r}"
    function = imported(what, path)
    check_handler(what, function)
    return function
