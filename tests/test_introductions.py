"""Waiting for introductions: one deadline for all parts of a federation, and some time for each."""

import time
from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Message

from florets.engines.local_grid import LocalGrid
from florets.strategies.base import federation
from florets.strategies.base.federation import Federation
from tests.fakes import FakeClients


class SilentGrid(LocalGrid):
    """Answers of some nodes never arrive, and waiting for them moves a clock that stands otherwise."""

    def __init__(self, clients: FakeClients, silent: set[int]) -> None:
        super().__init__(clients.grid()._app, len(clients.targets))
        self.silent = silent
        self.now = 0.0
        self.asked: list[tuple[float, int]] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        self.asked += [(self.now, message.metadata.dst_node_id) for message in messages]
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [
            reply for reply in super().pull_messages(message_ids) if reply.metadata.src_node_id not in self.silent
        ]

    def wait_for_replies(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("silent", "starts", "end"),
    [
        # Nobody is silent: no part waits.
        ((), (0, 0, 0), 0),
        # The first part takes the whole deadline; the second and third still have their share, which they need not.
        ((0,), (0, 12, 12), 12),
        # One in each part: 12 s for the first, a third of that for each of the others, and not 12 s thrice.
        ((0, 2, 4), (0, 12, 16), 20),
        # What the first part leaves of the deadline is the second's: it waits all of it.
        ((2,), (0, 0, 12), 12),
    ],
)
def test_parts_of_a_federation_share_a_deadline(
    silent: tuple[int, ...], starts: tuple[int, ...], end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "_AT_ONCE", 2)
    clients = FakeClients([1.0] * 6)
    grid = SilentGrid(clients, set())
    nodes = grid.get_node_ids()
    grid.silent = {nodes[place] for place in silent}
    monkeypatch.setattr(time, "monotonic", lambda: grid.now)
    found = Federation(num_clients=6, start_timeout=12.0, min_clients=3)
    found.refresh(grid, ConfigRecord())
    begun = {node: at for at, node in reversed(grid.asked)}
    # A part looks a last time at most one pause (0.25 s) after its deadline.
    assert [begun[nodes[place]] for place in (0, 2, 4)] == [pytest.approx(at, abs=0.6) for at in starts]
    assert grid.now == pytest.approx(end, abs=0.9)
    assert sorted(found.clients) == [str(place) for place in range(6) if place not in silent]
