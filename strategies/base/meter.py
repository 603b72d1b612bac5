"""Time, bytes and reply counts of one round."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.app import Message

from florets.strategies.base.exchange import Replies
from florets.task.wire import payload_bytes
from florets.task.work import Work, total_work


class Meter:
    """Adds up what a round costs, part by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes_down = 0
        self.bytes_up = 0
        self.replies = Counter(ok=0, error=0, missing=0, invalid=0)
        self.rejected: dict[str, str] = {}
        self.tries = 0
        self.work = Work()
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

    def count_bytes(self, sent: Iterable[Message], received: Iterable[Message]) -> None:
        """Count the payload of an exchange in both directions, in bytes."""
        self.bytes_down += sum(payload_bytes(message.content) for message in sent)
        self.bytes_up += sum(payload_bytes(message.content) for message in received if message.has_content())

    def count_work(self, work: Work) -> None:
        """Count what the replies of an exchange cost the clients."""
        self.work = total_work([self.work, work])

    def finish(self) -> None:
        """Close the round: its whole wall time becomes the part "total"."""
        self.seconds["total"] = time.perf_counter() - self._start
