"""Admission to a run: a client that cannot start costs its own place, and false claims gain nobody anything."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.federation import Federation, FederationError, WrongNodeCount
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds
from florets.task.wire.flower import NodeInfo
from tests.fakes import FakeClients, models

Fault = Callable[[RecordDict], RecordDict]


def says(record: str, key: str, value: str | int) -> Fault:
    def change(content: RecordDict) -> RecordDict:
        content[record][key] = value  # type: ignore[index,assignment]
        return content

    return change


def four(faults: dict[int, Fault] | None = None, keys: list[str] | None = None) -> LocalGrid:
    """Return a grid of four nodes, 2 to 5, whose clients 0 to 3 introduce themselves with these faults."""
    told = {(kinds.HELLO, 0, client): fault for client, fault in (faults or {}).items()}
    return FakeClients([0.0] * 4, keys=keys, faults=told).grid()


def admitted(federation: Federation, grid: LocalGrid) -> list[str]:
    federation.refresh(grid, ConfigRecord())
    return [client.key for client in federation.online()]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (says(kinds.CONFIG, kinds.FINGERPRINT, "old"), r"runs other code \(old\) than the server \(fake\)"),
        (says(kinds.METRICS, "num-partitions", 7), "it says that 7 nodes are simulated, and the run has"),
        (says(kinds.METRICS, kinds.NUM_EXAMPLES, 10_001), "it claims 10001 training samples, over 1000 times"),
        (says(kinds.CONFIG, kinds.CLIENT_KEY, "=1+1"), "must not begin with one of = "),
    ],
)
def test_one_that_cannot_start_costs_its_own_place(
    fault: Fault, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(4, 1.0, "fake", min_clients=3)
    assert admitted(federation, four({1: fault})) == ["0", "2", "3"]
    assert len(federation.left_out) == 1
    assert len(caplog.records) == 1
    with pytest.raises(FederationError, match=rf"^3 of 4 clients could start: .*client .*{reason}"):
        Federation(4, 1.0, "fake").refresh(four({1: fault}), ConfigRecord())


def test_a_simulation_of_another_size_ends_the_run_at_once() -> None:
    with pytest.raises(WrongNodeCount, match="num_clients=3, but Flower started 4"):
        Federation(3, 1.0, min_clients=1).refresh(four(), ConfigRecord())
    # One real node that says so ends nobody else's run.
    real = {client: says(kinds.METRICS, "num-partitions", 7 if client == 1 else 0) for client in range(4)}
    assert admitted(Federation(4, 1.0, "fake", min_clients=3), four(real)) == ["0", "2", "3"]


def test_of_two_nodes_with_one_key_the_lower_node_id_keeps_the_place(caplog: pytest.LogCaptureFixture) -> None:
    federation, grid = Federation(None, 1.0, min_clients=3), four(keys=["a", "b", "a", "c"])
    assert admitted(federation, grid) == ["a", "b", "c"]
    assert federation.clients["a"].node_id == 2
    assert "nodes 2 and 4 both call themselves client 'a'" in caplog.text
    assert (federation.left_out, admitted(federation, grid)) == (["a (node 4)"], ["a", "b", "c"])


@pytest.mark.parametrize("late", [False, True])
def test_a_node_cannot_take_the_name_that_another_is_registered_under(late: bool) -> None:
    federation, grid = Federation(None, 1.0, min_clients=1), four(keys=["a", "b", "?", "c"])
    grid.get_nodes = lambda: [NodeInfo(node_id=2), NodeInfo(node_id=4, name="a")]  # type: ignore[method-assign]
    if late:
        grid.get_node_ids = lambda: [2, 3]  # type: ignore[method-assign]
        assert admitted(federation, grid) == ["a", "b"]
        del grid.get_node_ids  # type: ignore[method-assign]
    assert admitted(federation, grid) == ["a", "b", "c"]
    assert (federation.clients["a"].node_id, federation.left_out) == (4, ["a (node 2)"])


def arriving(*counts: int) -> LocalGrid:
    """Return a grid on which nodes come online one after the other; the last count stays."""
    grid = FakeClients([0.0] * 4).grid()
    nodes = grid.get_node_ids()
    looks: Iterator[int] = iter(counts)
    seen = [0]

    def online() -> list[int]:
        seen[0] = next(looks, seen[0])
        return nodes[: seen[0]]

    grid.get_node_ids = online  # type: ignore[method-assign]
    return grid


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("florets.strategies.base.federation._SETTLE_SECONDS", 0.01)


def test_too_few_nodes_end_the_run_with_the_remedy() -> None:
    with pytest.raises(FederationError, match=r"2 of min_clients=3 nodes came online within 0.1 s; start the other"):
        Federation(None, 0.1, min_clients=3).refresh(arriving(2), ConfigRecord())


def keys(federation: Federation, grid: LocalGrid, *online: int) -> list[str]:
    """Let these clients be online, look who is there, and return the keys of those who can take part."""
    grid.get_node_ids = lambda: [client + 2 for client in online]  # type: ignore[method-assign]
    federation.refresh(grid, ConfigRecord())
    return [client.key for client in federation.online()]


def test_a_node_that_failed_three_times_and_is_started_again_has_three_more_tries() -> None:
    mended = [False]

    def broken(content: RecordDict) -> RecordDict:
        if not mended[0]:
            raise ValueError("no such folder")
        return content

    clients = FakeClients([0.0] * 2, faults={(kinds.HELLO, 0, 1): broken})
    federation, grid = Federation(None, 0.1), clients.grid()
    assert keys(federation, grid, 0) == ["0"]
    for _ in range(5):
        assert keys(federation, grid, 0, 1) == ["0"]
    assert clients.asked(kinds.HELLO).count(1) == 3
    mended[0] = True
    assert keys(federation, grid, 0) == ["0"]
    assert keys(federation, grid, 0, 1) == ["0", "1"]


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


@pytest.mark.parametrize("kind", [kinds.HELLO, kinds.TRAIN])
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
    with pytest.raises(FederationError, match=r"1 did not answer in time, for example client west \(tried 3 times\)"):
        start(grid, round_timeout=100, quorum=1.0)
    assert grid.now == pytest.approx(300, abs=1)
    assert caplog.messages.count("waiting for 1 of 4 clients: west (60 s so far, at most 40 s more)") == 3
    assert caplog.messages.count("no answer in time from client west") == 3
