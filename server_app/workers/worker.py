"""A worker process: it answers messages that it is handed until its pipe is closed."""

import contextlib
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from florets.server_app.local_grid import answered, as_flowers_process
from florets.server_app.parent_process import end_with_parent
from florets.server_app.workers.backend import READY
from florets.server_app.workers.client_side import ClientSide, LoadClientSide
from florets.server_app.workers.message_pickling import Answer, Sent, pickled
from florets.server_app.workers.shared_messages import MessageReader
from florets.strategies.base.loop import seldom_collected
from florets.task import given
from florets.task.shared_file import Place, SharedFile, SharedTask
from florets.task.threads import one_thread_for_good


@dataclass(frozen=True)
class Order:
    """Messages that a worker is to answer.

    Parameters
    ----------
    exchange
        Number of the exchange that they belong to.
    place
        Where they stand in the shared file.
    block
        Size of the block that they are; 0: each is answered by itself.
    """

    exchange: int
    place: Place
    block: int = 0


def work(
    pipe: "Connection[Any, Any]",
    load: LoadClientSide,
    file: SharedFile,
    clients: Place | None,
    files: Mapping[str, bytes],
) -> None:
    """Answer the orders that come through a pipe.

    Parameters
    ----------
    pipe
        `Order` comes; `READY`, and then pickled answers and the process's CPU seconds so far, go.
    load
        Brings the ClientApp.
    file
        Where messages and data stand.
    clients
        Place of the `SharedClients`, None where each node has data of its own.
    files
        Objects that were given in Python, see `florets.task.given`.
    """
    # Ctrl-C and the end of a terminal reach all of its processes: the first one ends the others.
    for name in ("SIGINT", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    as_flowers_process()
    given.adopt(files)
    side, reader = load(), MessageReader(file)
    one_thread_for_good()
    if clients is not None:
        side.adopt(SharedTask(pickle.loads(file.read(clients)), file))
    # Closed, or its other end's process gone: there is nothing left to do.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), seldom_collected():
        pipe.send_bytes(READY)
        while True:
            order: Order = pipe.recv()
            pipe.send_bytes(answered_unit(side, reader.read(order.exchange, order.place), order.block))


def answered_unit(side: ClientSide, sent: Sent, block: int) -> bytes:
    """Answer messages, as a block of a size or, where that is 0, each by itself; in a worker.

    Returns
    -------
    bytes
        A pickled `Answer` to each, and the process's CPU seconds so far.
    """
    return pickled((list(_answers(side, sent, block)), time.process_time()))


def _answers(side: ClientSide, sent: Sent, block: int) -> Iterator[Answer]:
    if not block:
        for message, context in sent:
            had_state = bool(context.state)
            reply = answered(side.app, message, context)
            yield reply, context.state if had_state or context.state else None
        return
    for places in side.in_blocks(sent, block):
        # Kinds that are computed in blocks are the built-in ones, which leave the state alone.
        for message, context in (sent[place] for place in places):
            yield answered(side.app, message, context), None
