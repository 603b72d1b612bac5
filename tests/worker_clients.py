"""Client sides for tests of worker processes: handlers and apps that end, hang or remember in the middle of a run."""

import os
import signal
import time
from collections.abc import Callable

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict

from florets.client_app.authors_client import Client
from florets.client_app.training import reply
from florets.engines.engine import client_side
from florets.engines.workers import ClientSide
from florets.task.wire import kinds

LOST = 3
"""Partition of the client that is lost in round 2."""


def remember(client: Client) -> RecordDict:
    """Count this client's messages in its state."""
    state = client.context.state
    seen = int(state["seen"]["count"]) + 1 if "seen" in state else 1  # type: ignore[call-overload, index, arg-type]
    state["seen"] = ConfigRecord({"count": seen})
    return reply(None, {"seen": seen, "process": os.getpid()})


def _losing(lose: Callable[[], None]) -> ClientSide:
    def maybe(partition_id: int, server_round: int) -> None:
        if (partition_id, server_round) == (LOST, 2):
            lose()

    return before_training(maybe)


def before_training(do: Callable[[int, int], None]) -> ClientSide:
    """Return an app that calls a function with client and round before it trains."""
    side = client_side()
    plain = side.app

    def app(message: Message, context: Context) -> Message:
        config = message.content[kinds.CONFIG]
        assert isinstance(config, ConfigRecord)
        if message.metadata.message_type == kinds.TRAIN:
            do(int(context.node_config["partition-id"]), int(config[kinds.SERVER_ROUND]))  # type: ignore[arg-type]
        return plain(message, context)

    return ClientSide(app, side.in_blocks, side.cut_blocks, side.adopt)  # type: ignore[arg-type]  # it is called alone


def raising() -> ClientSide:
    """Return an app that raises for one client in round 2."""

    def lose() -> None:
        raise RuntimeError("lost")

    return _losing(lose)


def ending() -> ClientSide:
    """Return an app that ends its process for one client in round 2."""
    return _losing(lambda: os.kill(os.getpid(), signal.SIGKILL))


def hanging() -> ClientSide:
    """Return an app that hangs for one client in round 2."""
    return _losing(lambda: time.sleep(1000))


def threads(client: Client) -> RecordDict:
    """Tell the threads that PyTorch computes with, and those of the process that this one is a copy of."""
    server = len(os.listdir(f"/proc/{os.getppid()}/task"))
    return reply(None, {"torch": torch.get_num_threads(), "server": server})
