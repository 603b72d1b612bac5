"""A run that waits says so once a minute: for whom, how long already and how long still."""

import logging
import time
from collections.abc import Iterable

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.federation import Federation, FederationError, RoundFailed
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds
from tests.fakes import FakeClients, models


class SlowGrid(LocalGrid):
    """Some clients answer only after so many seconds of a clock that nothing but waiting moves; 1e9: never."""

    def __init__(self, clients: FakeClients, seconds: dict[int, float], kind: str) -> None:
        super().__init__(clients.grid()._app, len(clients.targets))
        self.seconds, self.kind, self.now = seconds, kind, 0.0
        self.expires = False
        self._sent: dict[str, tuple[float, Message]] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        ids = super().push_messages(messages)
        self._sent |= {name: (self.now, message) for name, message in zip(ids, messages, strict=True)}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        arrived, replies = [], []
        for message_id in message_ids:
            sent, message = self._sent[message_id]
            is_slow = message.metadata.message_type == self.kind
            if self.now >= sent + (self.seconds.get(message.metadata.dst_node_id - 2, 0.0) if is_slow else 0.0):
                arrived.append(message_id)
            elif self.expires and self.now >= sent + message.metadata.ttl:
                replies.append(Message(Error(code=3, reason="Message Unavailable"), reply_to=message))
        return [*super().pull_messages(arrived), *replies]

    def wait_for_replies(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "florets")


def slow(seconds: dict[int, float], kind: str, monkeypatch: pytest.MonkeyPatch) -> SlowGrid:
    grid = SlowGrid(FakeClients([1.0] * 4, keys=["north", "east", "south", "west"]), seconds, kind)
    monkeypatch.setattr(time, "monotonic", lambda: grid.now)
    monkeypatch.setattr(time, "sleep", grid.wait_for_replies)
    return grid


def start(grid: LocalGrid, **settings: float) -> ArrayRecord:
    return FedAvg(num_clients=4, **settings).start(grid, models(0.0), num_rounds=1).arrays  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kinds.HELLO, kinds.TRAIN, kinds.EVALUATE])
def test_who_is_late_is_named_once_a_minute(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(slow({0: 70, 3: 130}, kind, monkeypatch), start_timeout=600, round_timeout=600)
    # Until they have said who they are, nodes go by their ids.
    north, west = ("node 2", "node 5") if kind == kinds.HELLO else ("north", "west")
    assert [line for line in caplog.messages if line.startswith("waiting")] == [
        f"waiting for 2 of 4 clients: {north}, {west} (60 s so far, at most 540 s more)",
        f"waiting for 1 of 4 clients: {west} (120 s so far, at most 480 s more)",
    ]


@pytest.mark.parametrize("expires", [False, True])
def test_a_node_that_never_answers_ends_the_run_after_its_tries(
    expires: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = slow({3: 1e9}, kinds.TRAIN, monkeypatch)
    # Flower's network answers at the deadline for a node that has not.
    grid.expires = expires
    with pytest.raises(FederationError, match=r"1 did not answer in time, for example client west \(tried 2 times\)"):
        start(grid, round_timeout=100, round_tries=2, quorum=1.0)
    assert grid.now == pytest.approx(200, abs=1)
    assert caplog.messages.count("waiting for 1 of 4 clients: west (60 s so far, at most 40 s more)") == 2
    assert caplog.messages.count("no answer in time from client west") == 2


def test_waiting_for_nodes_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = slow({}, kinds.TRAIN, monkeypatch)
    federation = Federation(None, 100.0, min_clients=4)
    grid.get_node_ids = lambda: [2, 3, 4, 5] if grid.now > 65 else [2, 3]  # type: ignore[method-assign]
    federation.refresh(grid, ConfigRecord())
    assert "waiting for nodes: 2 of 4 are online (60 s so far, at most 40 s more)" in caplog.messages
    grid.get_node_ids = list  # type: ignore[method-assign]
    with pytest.raises(RoundFailed):
        federation.refresh(grid, ConfigRecord())
    assert caplog.messages[-1] == "waiting for a client to come back online (60 s so far, at most 40 s more)"
