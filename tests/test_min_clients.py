"""A run with nodes of their own data waits for as many as it needs, and takes more."""

import time
from collections.abc import Iterator

import pytest
from flwr.app import ConfigRecord, RecordDict

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.federation import Federation, FederationError, RoundFailed
from florets.task.wire import kinds
from tests.fakes import FakeClients


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


def test_it_waits_for_nodes_that_come_late_although_their_number_rests() -> None:
    federation = Federation(None, 5.0, min_clients=3)
    federation.refresh(arriving(0, 2, 2, 2, 3), ConfigRecord())
    assert len(federation.online()) == 3


def test_more_nodes_than_needed_take_part() -> None:
    federation = Federation(None, 5.0, min_clients=2)
    grid = arriving(2, 4)
    federation.refresh(grid, ConfigRecord())
    federation.refresh(grid, ConfigRecord())
    assert len(federation.online()) == 4


def test_too_few_nodes_end_the_run_with_the_remedy() -> None:
    with pytest.raises(FederationError, match=r"2 of min_clients=3 nodes came online within 0.1 s; start the other"):
        Federation(None, 0.1, min_clients=3).refresh(arriving(2), ConfigRecord())


def test_a_node_whose_data_do_not_fit_costs_only_itself_where_enough_others_are_there() -> None:
    def broken(_: RecordDict) -> RecordDict:
        raise ValueError("this node's inputs have shape (4,)")

    clients = FakeClients([0.0] * 4, faults={(kinds.HELLO, 0, 1): broken})
    federation = Federation(None, 5.0, min_clients=3)
    federation.refresh(clients.grid(), ConfigRecord())
    assert [client.key for client in federation.online()] == ["0", "2", "3"]
    with pytest.raises(FederationError, match=r"3 of 4 clients could start: 1 failed, .* inputs have shape \(4,\)"):
        Federation(None, 5.0, min_clients=4).refresh(clients.grid(), ConfigRecord())


def keys(federation: Federation, grid: LocalGrid, *online: int) -> list[str]:
    """Let these clients be online, look who is there, and return the keys of those who can take part."""
    grid.get_node_ids = lambda: [client + 2 for client in online]  # type: ignore[method-assign]
    federation.refresh(grid, ConfigRecord())
    return [client.key for client in federation.online()]


def test_in_the_middle_of_a_run_any_client_that_comes_back_will_do() -> None:
    federation = Federation(None, 5.0, min_clients=3)
    grid = arriving(3, 3, 0, 0, 1)
    federation.refresh(grid, ConfigRecord())
    federation.refresh(grid, ConfigRecord())
    assert [client.key for client in federation.online()] == ["0"]


def test_when_all_have_gone_a_round_waits_before_it_fails() -> None:
    federation, grid = Federation(None, 0.1, min_clients=3), FakeClients([0.0] * 4).grid()
    keys(federation, grid, 0, 1, 2)
    start = time.monotonic()
    with pytest.raises(RoundFailed, match=r"no client came back online within 0.1 s"):
        keys(federation, grid)
    assert time.monotonic() - start >= 0.1


def test_a_late_node_with_a_key_in_use_is_left_out_until_the_other_one_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients = FakeClients([0.0] * 4, keys=["a", "b", "a", "c"])
    federation, grid = Federation(None, 0.1), clients.grid()
    assert keys(federation, grid, 0, 1) == ["a", "b"]
    first = federation.clients["a"].node_id
    assert keys(federation, grid, 0, 1, 2, 3) == ["a", "b", "c"]
    assert federation.clients["a"].node_id == first
    assert "both call themselves client 'a'" in caplog.text
    asked = len(clients.asked(kinds.HELLO))
    assert keys(federation, grid, 0, 1, 2, 3) == ["a", "b", "c"]
    assert len(clients.asked(kinds.HELLO)) == asked
    assert keys(federation, grid, 1, 2, 3) == ["a", "b", "c"]
    assert federation.clients["a"].node_id != first


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
