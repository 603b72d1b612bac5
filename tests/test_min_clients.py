"""A run with nodes of their own data waits for as many as it needs, and takes more."""

from collections.abc import Iterator

import pytest
from flwr.app import ConfigRecord, RecordDict

from server_app.local_grid import LocalGrid
from strategies.federation import Federation, FederationError
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
    monkeypatch.setattr("strategies.federation._SETTLE_SECONDS", 0.01)


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

    clients = FakeClients([0.0] * 4, faults={("query.hello", 0, 1): broken})
    federation = Federation(None, 5.0, min_clients=3)
    federation.refresh(clients.grid(), ConfigRecord())
    assert [client.key for client in federation.online()] == ["0", "2", "3"]
    with pytest.raises(FederationError, match=r"3 of 4 clients could start: 1 failed, .* inputs have shape \(4,\)"):
        Federation(None, 5.0, min_clients=4).refresh(clients.grid(), ConfigRecord())
