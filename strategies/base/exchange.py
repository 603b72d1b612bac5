"""The one way a strategy talks to clients: send a list of messages, wait, sort, check and count the replies."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.report import Costs, named
from florets.task.given import hold
from florets.task.tested import Work, total_work
from florets.task.wire import MalformedMessage, payload_bytes
from florets.task.wire.flower import APP_NOT_LOADED, MESSAGE_UNAVAILABLE
from florets.task.wire.records import NotFinite
from florets.task.wire.replies import Update, take_work

_SECONDS = 60.0


class Waiting:
    """A wait that begins now, and when it was last reported."""

    def __init__(self) -> None:
        self._begun = self._reported = time.monotonic()

    def report(self, deadline: float, what: Callable[[], str]) -> None:
        """Log what is waited for and until when (`time.monotonic`), if a minute has passed since the last line."""
        now = time.monotonic()
        if now - self._reported >= _SECONDS:
            self._reported = now
            so_far, left = now - self._begun, max(0.0, deadline - now)
            log.info("waiting for %s (%.0f s so far, at most %.0f s more)", what(), so_far, left)


Handler = str | Callable[..., Any]


def handler_path(handler: Handler) -> str:
    """Return the import path ``package.module:function`` of a handler; ValueError if clients cannot import it."""
    if isinstance(handler, str):
        return handler
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", "")
    if not module or not name.isidentifier():
        raise ValueError(
            f"client handler {handler!r}: clients import it by name; write a function at the top level of a module"
        )
    if module != "__main__":
        return f"{module}:{name}"
    # A notebook's, or a script's: other processes cannot import it, and are handed a copy. The copy knows its path.
    if not hasattr(handler, "_florets_path"):
        handler._florets_path = hold(handler, name)  # type: ignore[attr-defined]  # a function may have any
    return str(handler._florets_path)  # type: ignore[attr-defined]  # as above


T = TypeVar("T")
U = TypeVar("U")
Read = Callable[[str, RecordDict], T]

log = logging.getLogger("florets")

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# How a SuperNode writes an exception: <class 'package.Name'>:<'text'>.
_RAISED = re.compile(r"<class '(?:[\w.]+\.)?(\w+)'>:<'(.*)'>\s*", re.DOTALL)
_LONGEST_REASON = 500
_MOST_REASONS = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


@dataclass(frozen=True)
class Request:
    """A message and the key of its client."""

    key: str
    message: Message


@dataclass(frozen=True)
class Replies(Generic[T]):
    """Replies of one exchange, sorted by client key: checked contents, and reasons by key for the others.

    `not_finite` are the invalid ones with such values; `surplus` the nodes of second replies, and of a stranger's.
    """

    ok: tuple[tuple[str, T], ...]
    error: dict[str, str]
    missing: tuple[str, ...]
    invalid: dict[str, str]
    work: Mapping[str, Work] = field(default_factory=dict)
    not_finite: frozenset[str] = frozenset()
    surplus: tuple[int, ...] = ()

    @property
    def asked(self) -> int:
        """Number of clients that were asked."""
        return len(self.ok) + len(self.error) + len(self.missing) + len(self.invalid)

    def of(self, contents: Mapping[str, U]) -> "Replies[U]":
        """Return the replies with the valid ones replaced, by key."""
        found: Any = self
        return replace(found, ok=tuple(contents.items()))

    def warn(self) -> None:
        """Log why replies are missing."""
        for title, reasons in (("failed", self.error), ("sent an invalid reply", self.invalid)):
            for keys in alike(reasons):
                log.warning("client %s %s: %s", ", ".join(keys), title, reasons[keys[0]])
        if self.missing:
            log.warning("no answer in time from client %s", ", ".join(self.missing))
        for node in self.surplus:
            log.warning("node %d sent a reply too many: it answers no message that is waiting for one", node)

    @property
    def has_diverged(self) -> bool:
        """Whether most of the missing replies, and over a quarter of all, hold values that are not finite."""
        lacking = len(self.invalid) + len(self.error) + len(self.missing)
        # Where a quorum is all clients, one that sends NaN must not end the run for good.
        return 2 * len(self.not_finite) > lacking and 4 * len(self.not_finite) > self.asked

    def failures(self) -> str:
        """Return why replies are missing, for an error: an example of each kind and of its commonest reasons."""
        parts = []
        if self.missing:
            parts.append(f"{len(self.missing)} did not answer in time, for example client {self.missing[0]}")
        for title, reasons in (("failed", self.error), ("sent an invalid reply", self.invalid)):
            groups = sorted(alike(reasons), key=len, reverse=True)
            for keys in groups[:_MOST_REASONS]:
                parts.append(
                    f"{len(keys)} {title}, for example client {keys[0]}: {reasons[keys[0]].removesuffix('.')}"
                )
            if left := sum(map(len, groups[_MOST_REASONS:])):
                parts.append(f"{left} {title} for other reasons")
        return "; ".join(parts)


def alike(reasons: Mapping[str, str]) -> list[list[str]]:
    """Return the clients of each reason, in order."""
    groups: dict[str, list[str]] = {}
    for key in sorted(reasons, key=lambda key: (reasons[key], key)):
        groups.setdefault(reasons[key], []).append(key)
    return list(groups.values())


def send(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    name_of: Callable[[int], str] = "node {}".format,
) -> list[Message]:
    """Send messages and return the replies that arrive within `timeout` seconds; log late clients once a minute.

    Flower's grids pause 0.1 s (simulation) or 3 s (deployment) between two looks, most of a short exchange. A grid
    with a `wait_for_replies` wakes up itself.
    """

    def late() -> str:
        names = [name_of(m.metadata.dst_node_id) for m in messages if m.metadata.message_id in waiting]
        return f"{len(waiting)} of {len(messages)} clients: {named(names)}"

    wait = Waiting()
    rest = getattr(grid, "wait_for_replies", time.sleep)
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
        wait.report(deadline, late)
        rest(pause)
        pause = min(pause * 1.3, _LONGEST_PAUSE)
    return replies


def sort_replies(requests: Sequence[Request], replies: Iterable[Message], read: Read[T]) -> Replies[T]:
    """Classify replies against the requests, and read the valid ones; a message's second reply counts for nothing.

    A reply is matched by the id of the message that it answers: the network itself answers for a lost node.
    """
    waiting = {request.message.metadata.message_id: request.key for request in requests}
    ok: dict[str, T] = {}
    error: dict[str, str] = {}
    invalid: dict[str, str] = {}
    work: dict[str, Work] = {}
    not_finite, surplus = set(), []
    for reply in replies:
        key = waiting.pop(reply.metadata.reply_to_message_id, None)
        if key is None:
            surplus.append(reply.metadata.src_node_id)
            continue
        if reply.has_error():
            # The network answers at the deadline for a node that has not: it is late, and has not failed.
            if reply.error.code != MESSAGE_UNAVAILABLE:
                reason = clean_reason(reply.error.reason or f"error code {reply.error.code}")
                # Of this Flower keeps the cause to itself.
                error[key] = f"{reason} (its log says why)" if reply.error.code == APP_NOT_LOADED else reason
            continue
        content = reply.content
        try:
            # Readers hold a reply to its records, of which this is none.
            cost = take_work(content)
            ok[key] = read(key, content)
            work[key] = cost
        except MalformedMessage as problem:
            invalid[key] = clean_reason(str(problem))
            if isinstance(problem, NotFinite):
                not_finite.add(key)
    # By key and not by message id: a message that the network refused has none.
    missing = tuple(sorted({request.key for request in requests} - ok.keys() - error.keys() - invalid.keys()))
    in_order = tuple(sorted(ok.items(), key=lambda item: item[0]))
    return Replies(in_order, error, missing, invalid, work, frozenset(not_finite), tuple(surplus))


def clean_reason(reason: str) -> str:
    """Return the last line of an error text, shortened: a client's traceback stays out of the server's log."""
    plain = _ANSI.sub("", reason)
    if raised := _RAISED.fullmatch(plain):
        plain = f"{raised[1]}: {raised[2]}"
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_REASON] if lines else "no reason given"
    return "".join(character if character.isprintable() else "?" for character in last)


class Meter(Costs):
    """Adds up the costs of a round, by part and by client."""

    def __init__(self) -> None:
        super().__init__(tries=0)
        self._start = time.perf_counter()
        self._inner = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the wall time of a block under `name`; parts within it are counted separately."""
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
        self.replies.update({kind: len(getattr(replies, kind)) for kind in ("ok", "error", "missing", "invalid")})
        self.replies["invalid"] += len(replies.surplus)

    def reject(self, keys: Sequence[str], reason: str) -> None:
        """Count valid replies as invalid after all."""
        self.replies.update(ok=-len(keys), invalid=len(keys))
        for key in keys:
            self.rejected[key] = self.clients[key].rejected = reason
            self.clients[key].reply = "invalid"

    def count_exchange(self, requests: Sequence[Request], received: Iterable[Message], replies: Replies[Any]) -> None:
        """Count an exchange of the algorithm's: replies by kind, bytes both ways, and the clients' work."""
        self.count(replies)
        senders = {request.message.metadata.message_id: self.clients[request.key] for request in requests}
        for request in requests:
            self.clients[request.key].bytes_down += payload_bytes(request.message.content)
        for message in received:
            # A reply to no message of this exchange has no client to whom it could be counted.
            sender = senders.get(message.metadata.reply_to_message_id)
            if message.has_content() and sender is not None:
                sender.bytes_up += payload_bytes(message.content)
        for key, work in replies.work.items():
            self.clients[key].seconds += work.seconds
        self.work = total_work([self.work, *replies.work.values()])
        for kind in ("error", "missing", "invalid"):
            for key in getattr(replies, kind):
                self.clients[key].reply = kind
        for key, _ in replies.ok:
            self.clients[key].reply = "ok"
        for key, reason in replies.invalid.items():
            self.clients[key].rejected = reason

    def count_training(self, updates: Iterable[tuple[str, Update]]) -> None:
        """Note training loss, samples and halvings of the updates that the round uses."""
        for key, update in updates:
            part = self.clients[key]
            part.train_loss, part.samples = update.train_loss, update.num_examples
            part.halvings = update.halvings

    def count_kept(self, key: str, kept: float) -> None:
        """Note which part of a client's update counted in a robust average; of several averages the least."""
        part = self.clients[key]
        part.kept = kept if part.kept is None else min(part.kept, kept)

    def finish(self) -> dict[str, Any]:
        """Close the round, whose whole wall time becomes the part "total"; return its `Costs` by name."""
        self.seconds["total"] = time.perf_counter() - self._start
        self.bytes_down = sum(part.bytes_down for part in self.clients.values())
        self.bytes_up = sum(part.bytes_up for part in self.clients.values())
        return {one.name: copy(getattr(self, one.name)) for one in fields(Costs)}
