"""A node's process for one message ends when nobody waits for its reply any more."""

import faulthandler
import os
import sys
from collections.abc import Callable
from functools import lru_cache

from flwr.app import Context, Message

from florets.client_app.caps import SECONDS, Limits

Handler = Callable[[Message, Context], Message]

_NODES_PROCESS = "flwr-clientapp"


def within_deadline(message: Message, context: Context, call_next: Handler) -> Message:
    """Handle a message; on a deployed node, end the process where that takes longer than the message lives.

    A SuperNode of Flower 1.41 waits for its ClientApp's reply without end, and takes no other message before: one
    that hangs would cost its node every later round. The clocks of server and node may differ, so the time is
    counted from here: when it is over the deadline has passed for certain.
    """
    if not has_process_of_its_own():
        return call_next(message, context)
    # Its thread is not Python's: it also ends what hangs in C code, and tells the node's log where that was.
    seconds = min(message.metadata.ttl, Limits(context.node_config).most(SECONDS))
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return call_next(message, context)
    finally:
        faulthandler.cancel_dump_traceback_later()


def has_process_of_its_own() -> bool:
    """Return whether this process is a deployed node's, started for one message."""
    # A simulation's process serves many clients and is not replaced, and that of the in-process engine is the user's.
    return _is_nodes(sys.argv[0])


@lru_cache(maxsize=2)
def _is_nodes(program: str) -> bool:
    return os.path.splitext(os.path.basename(program))[0] == _NODES_PROCESS
