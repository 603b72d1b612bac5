"""Admission to a run: a client that cannot start costs its own place, and false claims gain nobody anything."""

from collections.abc import Callable

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.federation import Federation, FederationError, WrongNodeCount, implausible_counts
from florets.task.wire import kinds
from florets.task.wire.introduction import key_problem
from tests.fakes import FakeClients

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
        (says(kinds.METRICS, kinds.NUM_PARTITIONS, 7), "it says that 7 nodes are simulated, and the run has"),
        (says(kinds.METRICS, kinds.NUM_EXAMPLES, 10_001), "it claims 10001 training samples, over 1000 times"),
        (says(kinds.METRICS, kinds.NUM_EXAMPLES, 0), "num-examples is 0, not an integer"),
        (says(kinds.CONFIG, kinds.CLIENT_KEY, "k" * 201), "must have 1 to 200 characters"),
        (says(kinds.CONFIG, kinds.CLIENT_KEY, "=1+1"), "must not begin with one of = "),
        (says(kinds.CONFIG, kinds.DEVICE, "cpu\nERROR: forged"), "must hold printable characters only"),
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


def test_who_runs_other_code_is_named_once_and_in_full() -> None:
    with pytest.raises(FederationError) as error:
        Federation(4, 1.0, "mine", handlers=["own:train"]).refresh(four(), ConfigRecord())
    assert str(error.value) == (
        "0 of 4 clients could start: client 0, 1, 2, 3 cannot take part: it runs other code (fake) than the server "
        "(mine, with the strategy's handlers own:train). Simulated clients import from the folder in which the "
        "SuperLink was started: start the SuperLink in an empty folder, or in this project's, and run again"
    )


def test_a_simulation_of_another_size_ends_the_run_at_once() -> None:
    with pytest.raises(WrongNodeCount, match="num_clients=3, but Flower started 4"):
        Federation(3, 1.0, min_clients=1).refresh(four(), ConfigRecord())


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


def test_counts_are_believed_up_to_a_thousand_times_the_median() -> None:
    # The medians are 20, 20 and, of four, the lower one, 10.
    assert implausible_counts({1: 10, 2: 20, 3: 20_000}, []) == {}
    assert list(implausible_counts({1: 10, 2: 20, 3: 20_001}, [])) == [3]
    assert list(implausible_counts({3: 10_001}, [10, 5, 10_000])) == [3]
    # Of two nobody can say which one is wrong.
    assert implausible_counts({1: 1, 2: 10**9}, []) == {}


def test_a_registered_name_is_checked_as_well(caplog: pytest.LogCaptureFixture) -> None:
    grid = four()
    grid.get_nodes = lambda: [NodeInfo(node_id=3, name="+1")]  # type: ignore[method-assign]
    assert admitted(Federation(None, 1.0, min_clients=3), grid) == ["0", "2", "3"]
    assert "its name '+1' must not begin with" in caplog.text


def test_any_printable_text_is_a_key() -> None:
    assert [key_problem(key) for key in ("(1)", "_x", " lead", "😀", "k" * 200)] == [None] * 5
    for key in ("", "  ", "k" * 201, "a\tb", "\x1b[2J", "\udcff", "-1", "@x"):
        assert key_problem(key)
