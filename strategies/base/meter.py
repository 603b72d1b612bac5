"""Time, bytes and reply counts of one round, in all and by client."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import Message

from florets.strategies.base.exchange import Replies, Request
from florets.strategies.base.report import ClientRound, Compared
from florets.task.wire import payload_bytes
from florets.task.wire.replies import Update, Work, total_work


class Meter:
    """Adds up what a round costs, part by part and client by client.

    Attributes
    ----------
    clients
        The part of each client that was sent a message of the algorithm, by key.
    compared
        The vectors by which the round compared clients; None where it compared none.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes_down = 0
        self.bytes_up = 0
        self.replies = Counter(ok=0, error=0, missing=0, invalid=0)
        self.rejected: dict[str, str] = {}
        self.tries = 0
        self.work = Work()
        self.clients: dict[str, ClientRound] = {}
        self.compared: Compared | None = None
        self._start = time.perf_counter()
        self._inner = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the wall time of a block under `name`; a part within it counts for itself alone."""
        start, outer = time.perf_counter(), self._inner
        self._inner = 0.0
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inner
            self._inner = outer + elapsed

    def count(self, replies: Replies[Any]) -> None:
        """Count the replies of one exchange by kind."""
        self.replies.update(
            ok=len(replies.ok),
            error=len(replies.error),
            missing=len(replies.missing),
            invalid=len(replies.invalid) + len(replies.surplus),
        )

    def reject(self, reasons: Mapping[str, str]) -> None:
        """Count replies as invalid that were counted as valid, and note why, by client."""
        self.replies.update(ok=-len(reasons), invalid=len(reasons))
        self.rejected.update(reasons)
        for key, reason in reasons.items():
            part = self._part(key)
            part.reply, part.rejected = "invalid", reason

    def count_exchange(self, requests: Sequence[Request], received: Iterable[Message], replies: Replies[Any]) -> None:
        """Count one of the algorithm's exchanges: replies by kind, payload in bytes both ways, and the clients' work.

        Parameters
        ----------
        received
            All messages that came back, of which `replies` are those that were read.
        """
        self.count(replies)
        senders = {}
        for request in requests:
            part, size = self._part(request.key), payload_bytes(request.message.content)
            senders[request.message.metadata.message_id] = part
            part.bytes_down += size
            self.bytes_down += size
        for message in received:
            if message.has_content():
                size = payload_bytes(message.content)
                self.bytes_up += size
                # A reply to no message of this exchange has no client to whom it could be counted.
                if (sender := senders.get(message.metadata.reply_to_message_id)) is not None:
                    sender.bytes_up += size
        for key, work in replies.work.items():
            self._part(key).seconds += work.seconds
        self.work = total_work([self.work, *replies.work.values()])
        for key, _ in replies.ok:
            self._part(key).reply = "ok"
        for kind, keys in (("error", replies.error), ("missing", replies.missing), ("invalid", replies.invalid)):
            for key in keys:
                self._part(key).reply = kind
        for key, reason in replies.invalid.items():
            self._part(key).rejected = reason

    def count_training(self, updates: Iterable[tuple[str, Update]]) -> None:
        """Note training loss and samples of the updates that the round uses."""
        for key, update in updates:
            part = self._part(key)
            part.train_loss, part.samples = update.train_loss, update.num_examples

    def _part(self, key: str) -> ClientRound:
        part = self.clients.get(key)
        if part is None:
            part = self.clients[key] = ClientRound()
        return part

    def finish(self) -> None:
        """Close the round: its whole wall time becomes the part "total"."""
        self.seconds["total"] = time.perf_counter() - self._start
