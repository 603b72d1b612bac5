"""Nodes that host several clients: equal bits, faults of one client alone, and what no reply can do."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app
from florets.client_app.parcels import opened
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines import engine
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.server_app.parcel_grid import ParcelGrid
from florets.strategies.base.federation import WrongNodeCount
from florets.task.wire import MalformedMessage, bank, kinds, parcels
from tests.grid_runs import run_on

SMALL = ("num_clients=7", "k=2", "task.num_clusters=2", "num_rounds=4", "quiet=true")


class Counting(LocalGrid):
    """Counts messages; a message to a node of `broken` is answered with an error."""

    def __init__(self, num_nodes: int, broken: tuple[int, ...] = ()) -> None:
        super().__init__(app, num_nodes)
        self.kinds: list[str] = []
        self.broken = broken
        for context in self._contexts.values():
            del context.node_config[kinds.ONE_PROCESS]

    def _deliver(self, message: Message) -> Message:
        self.kinds.append(message.metadata.message_type)
        if message.metadata.dst_node_id in self.broken and message.metadata.message_type == kinds.PARCEL:
            return Message(Error(code=5, reason="gone"), reply_to=message)
        return super()._deliver(message)


def content(number: int) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({"n": number}), "config": ConfigRecord({"of": "x"})})


def test_messages_come_out_of_a_parcel_as_they_went_in() -> None:
    items = [parcels.Item(kinds.TRAIN, 5, content(0)), parcels.Item(kinds.EVALUATE, 3, content(1))]
    found, hosting = parcels.unpack(parcels.pack(items, parcels.Hosting(3, 7)))
    assert (found, hosting) == (items, parcels.Hosting(3, 7))
    replies = parcels.read_replies(parcels.pack_replies([content(4), parcels.Failure("no data")]), 2)
    assert replies == [content(4), parcels.Failure("no data")]


@pytest.mark.parametrize(
    "records",
    [{}, {"parcel": ConfigRecord({"failed": [1], "reasons": ["x", "y"]})}],
)
def test_a_reply_that_is_no_parcel_is_malformed(records: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage, match="parcel"):
        parcels.read_replies(RecordDict(records), 2)


@pytest.mark.parametrize("place", [-1, 3, 2.0])
def test_a_node_without_clients_is_refused(place: int) -> None:
    with pytest.raises(MalformedMessage, match="hosts none"):
        parcels.read_place(parcels.pack_place(place, 0), parcels.Hosting(3, 7))


def final(grid: LocalGrid | ParcelGrid, config: Config) -> tuple[bytes, list[Any]]:
    strategy, reports = run_on(grid, config, build_task(config))
    rows = [(one.bytes_up, one.bytes_down, one.replies, one.evaluations, one.assignment) for one in reports]
    values, _ = bank.unpack(strategy.context.models.record)
    return values.tobytes(), rows


@pytest.mark.parametrize("strategy", ["clove", "ifca"])
def test_hosted_clients_have_the_bits_of_clients_with_nodes_of_their_own(strategy: str) -> None:
    config = compose([*SMALL, f"strategy={strategy}", "strategy.fraction_train=0.7"])
    alone, hosts = Counting(7), Counting(3)
    assert final(ParcelGrid(hosts, parcels.Hosting(3, 7)), config) == final(alone, config)
    # 3, 3 and 1 clients.
    assert len(hosts.kinds) <= 3 / 5 * len(alone.kinds)
    assert set(hosts.kinds) == {kinds.HOSTED, kinds.PARCEL}


def test_a_node_that_is_gone_costs_its_clients_alone() -> None:
    config = compose([*SMALL[1:], "strategy=fedavg", "num_clients=6", "quorum=0.5", "min_clients=4"])
    grid = Counting(2)
    inner = ParcelGrid(grid, parcels.Hosting(3, 6))
    deliver = grid._deliver

    def from_round_2(message: Message) -> Message:
        grid.broken = (3,) if message.metadata.group_id == "2" else ()
        return deliver(message)

    grid._deliver = from_round_2  # type: ignore[method-assign]
    strategy, reports = run_on(inner, config, build_task(config))
    assert [one.replies["error"] for one in reports] == [0, 6, 0, 0]
    assert len(strategy.assignment) == 6


def test_a_node_that_does_not_say_whom_it_hosts_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    class Lying(LocalGrid):
        def _deliver(self, message: Message) -> Message:
            if message.metadata.message_type == kinds.HOSTED and message.metadata.dst_node_id == 3:
                return Message(Error(code=2, reason="no place"), reply_to=message)
            return super()._deliver(message)

    assert ParcelGrid(Lying(app, 3), parcels.Hosting(3, 9)).get_node_ids() == [1, 2, 3, 7, 8, 9]
    assert "node 3 cannot take part: no place" in caplog.text
    with pytest.raises(WrongNodeCount, match="num_clients=9 and clients_per_node=2, but Flower started 3"):
        ParcelGrid(LocalGrid(app, 3), parcels.Hosting(2, 9)).get_node_ids()


def test_a_node_that_says_anothers_place_takes_no_part(caplog: pytest.LogCaptureFixture) -> None:
    class Twice(LocalGrid):
        def _deliver(self, message: Message) -> Message:
            content = parcels.pack_place(0, 3)
            return Message(content, reply_to=message)

    assert len(ParcelGrid(Twice(app, 3), parcels.Hosting(3, 9)).get_node_ids()) == 3
    assert caplog.text.count("another node has its clients") == 2


def test_a_question_that_was_not_sent_is_asked_again() -> None:
    class Failing(LocalGrid):
        fails = True

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            return ["" for _ in messages] if self.fails else list(super().push_messages(messages))

    inner = Failing(app, 3)
    grid = ParcelGrid(inner, parcels.Hosting(3, 9))
    assert grid.get_node_ids() == []
    inner.fails = False
    assert grid.get_node_ids() == [*range(1, 10)]


def test_a_node_answers_for_its_own_clients_alone() -> None:
    def called(message: Message, context: Context) -> Message:
        config = {name: context.node_config[name] for name in ("partition-id", "num-partitions")}
        return Message(RecordDict({"config": ConfigRecord(config)}), reply_to=message)

    context = Context(1, 2, {"partition-id": 1, "num-partitions": 3}, RecordDict(), {})
    items = [parcels.Item(kinds.TRAIN, client, content(0)) for client in (4, 2)]
    parcel = Message(parcels.pack(items, parcels.Hosting(3, 7)), 2, kinds.PARCEL)
    own, other = parcels.read_replies(opened(cast(ClientApp, called), parcel, context).content, 2)
    assert own == RecordDict({"config": ConfigRecord({"partition-id": 4, "num-partitions": 7})})
    assert other == parcels.Failure("ValueError: this node does not host client 2")
    real = Context(1, 2, {"data-dir": "here"}, RecordDict(), {})
    with pytest.raises(ValueError, match="data of its own and hosts one client"):
        opened(cast(ClientApp, called), parcel, real)


def test_engines_without_nodes_refuse_hosts(tmp_path: Path) -> None:
    given = ["clients_per_node=2", f"results_dir={tmp_path}"]
    with pytest.raises(ConfigError, match="engine=local has no nodes"):
        engine.run(compose(given), given)
