"""The one way a strategy talks to clients: send a list of messages, wait, sort and check the replies."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from task.wire import MalformedMessage

T = TypeVar("T")
Read = Callable[[str, RecordDict], T]

log = logging.getLogger("florets")

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST_REASON = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


@dataclass(frozen=True)
class Request:
    """A message and the key of the client that it goes to."""

    key: str
    message: Message


@dataclass(frozen=True)
class Replies(Generic[T]):
    """Replies of one exchange, in the order of the client keys, whatever order they came in.

    Attributes
    ----------
    ok
        Key and checked content of each usable reply.
    error
        Reason by key, for clients whose app failed.
    missing
        Keys of the clients that had not answered at the deadline.
    invalid
        Rule that the reply broke, by key.
    """

    ok: tuple[tuple[str, T], ...]
    error: dict[str, str]
    missing: tuple[str, ...]
    invalid: dict[str, str]

    def failures(self) -> str:
        """Return why replies are lacking, one example of each kind, for an error's text."""
        parts = [f"{len(self.missing)} did not answer in time" if self.missing else ""]
        for title, reasons in (("failed", self.error), ("sent an unusable reply", self.invalid)):
            if reasons:
                key, reason = next(iter(reasons.items()))
                parts.append(f"{len(reasons)} {title}, for example client {key}: {reason}")
        return "; ".join(part for part in parts if part)


def exchange(grid: Grid, requests: Sequence[Request], read: Read[T], timeout: float) -> Replies[T]:
    """Send the requests, wait up to `timeout` seconds, and sort what came back."""
    return sort_replies(requests, send(grid, [request.message for request in requests], timeout), read)


def send(grid: Grid, messages: list[Message], timeout: float) -> list[Message]:
    """Send messages and return the replies that arrive within `timeout` seconds.

    The pause between two looks grows from 5 ms to 0.25 s: Flower's grids pause 0.1 s (simulation) or 3 s
    (deployment) each time, which is most of a short exchange.
    """
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    replies: list[Message] = []
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while waiting:
        arrived = list(grid.pull_messages(waiting))
        replies.extend(arrived)
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(pause)
        pause = min(pause * 1.3, _LONGEST_PAUSE)
    return replies


def sort_replies(requests: Sequence[Request], replies: Iterable[Message], read: Read[T]) -> Replies[T]:
    """Classify replies against the requests and read the usable ones.

    A reply is matched by the id of the message that it answers: the network itself answers for a lost node, under
    its own node id. A second reply to one message, or one to another round's message, counts as invalid.
    """
    keys = {request.message.metadata.message_id: request.key for request in requests}
    ok: dict[str, T] = {}
    error: dict[str, str] = {}
    invalid: dict[str, str] = {}
    for reply in replies:
        key = keys.pop(reply.metadata.reply_to_message_id, None)
        if key is None:
            invalid[f"node {reply.metadata.src_node_id}"] = "a reply that answers no message of this exchange"
        elif reply.has_error():
            error[key] = clean_reason(reply.error.reason or f"error code {reply.error.code}")
        else:
            try:
                ok[key] = read(key, reply.content)
            except MalformedMessage as problem:
                invalid[key] = clean_reason(str(problem))
    for title, reasons in (("failed", error), ("sent an unusable reply", invalid)):
        for reason in sorted(set(reasons.values())):
            keys_of_reason = sorted(key for key in reasons if reasons[key] == reason)
            log.warning("client %s %s: %s", ", ".join(keys_of_reason), title, reason)
    # By key and not by message id: a message that the network refused has none.
    missing = tuple(sorted({request.key for request in requests} - ok.keys() - error.keys() - invalid.keys()))
    if missing:
        log.warning("no answer in time from client %s", ", ".join(missing))
    return Replies(tuple(sorted(ok.items(), key=lambda item: item[0])), error, missing, invalid)


def clean_reason(reason: str) -> str:
    """Return the last line of an error text: a client's traceback stays out of the server's log.

    Colours and all else that a terminal would obey are taken out, and the text is cut to a length for reading.
    """
    lines = [line.strip() for line in _ANSI.sub("", reason).splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_REASON] if lines else "no reason given"
    return "".join(character if character.isprintable() else "?" for character in last)
