"""Nodes that host several clients: equal bits, faults of one client alone, and what no reply can do."""

from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app, opened
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines import engine
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.server_app.parcel_grid import ParcelGrid
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
    assert parcels.unpack(parcels.pack(items, 7)) == (items, 7)
    replies = [content(4), "no data"]
    assert parcels.read_replies(parcels.pack_replies(replies), 2) == replies


def test_a_reply_that_is_no_parcel_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="parcel"):
        parcels.read_replies(content(1), 2)
    assert parcels.read_replies(parcels.pack_replies([content(1)]), 2)[1] == "its node sent no reply of it"


def final(grid: LocalGrid | ParcelGrid, config: Config) -> tuple[bytes, list[Any]]:
    strategy, reports = run_on(grid, config, build_task(config))
    rows = [(one.bytes_up, one.bytes_down, one.replies, one.evaluations, one.assignment) for one in reports]
    values, _ = bank.unpack(strategy.context.models.record)
    return values.tobytes(), rows


@pytest.mark.parametrize("strategy", ["clove", "ifca"])
def test_hosted_clients_have_the_bits_of_clients_with_nodes_of_their_own(strategy: str) -> None:
    config = compose([*SMALL, f"strategy={strategy}", "strategy.fraction_train=0.7"])
    alone, hosts = Counting(7), Counting(3)
    assert final(ParcelGrid(hosts, 3, 7), config) == final(alone, config)
    # 3, 3 and 1 clients.
    assert len(hosts.kinds) <= 3 / 5 * len(alone.kinds)
    assert set(hosts.kinds) == {kinds.PARCEL}


def test_a_node_that_is_gone_costs_its_clients_alone() -> None:
    config = compose([*SMALL[1:], "strategy=fedavg", "num_clients=6", "quorum=0.5", "min_clients=4"])
    grid = Counting(2)
    inner = ParcelGrid(grid, 3, 6)
    deliver = grid._deliver

    def from_round_2(message: Message) -> Message:
        grid.broken = (3,) if message.metadata.group_id == "2" else ()
        return deliver(message)

    grid._deliver = from_round_2  # type: ignore[method-assign]
    strategy, reports = run_on(inner, config, build_task(config))
    assert [one.replies["error"] for one in reports] == [0, 6, 0, 0]
    assert len(strategy.assignment) == 6


def test_clients_of_a_node_that_has_gone_are_hosted_by_the_next() -> None:
    inner = LocalGrid(app, 3)
    grid = ParcelGrid(inner, 3, 6)
    assert grid.get_node_ids() == [1, 2, 3, 4, 5, 6]
    del inner._contexts[2]
    assert sorted(grid.get_node_ids()) == [1, 2, 3, 4, 5, 6]
    del inner._contexts[3]
    assert grid.get_node_ids() == [1, 2, 3]


def test_a_node_answers_as_its_clients() -> None:
    def called(message: Message, context: Context) -> Message:
        config = {name: context.node_config[name] for name in ("partition-id", "num-partitions")}
        return Message(RecordDict({"config": ConfigRecord(config)}), reply_to=message)

    context = Context(1, 2, {"partition-id": 1, "num-partitions": 3}, RecordDict(), {})
    parcel = Message(parcels.pack([parcels.Item(kinds.TRAIN, 4, content(0))], 7), 2, kinds.PARCEL)
    (own,) = parcels.read_replies(opened(cast(ClientApp, called), parcel, context).content, 1)
    assert own == RecordDict({"config": ConfigRecord({"partition-id": 4, "num-partitions": 7})})
    real = Context(1, 2, {"data-dir": "here"}, RecordDict(), {})
    with pytest.raises(ValueError, match="data of its own and hosts one client"):
        opened(cast(ClientApp, called), parcel, real)


def test_engines_without_nodes_refuse_hosts(tmp_path: Path) -> None:
    given = ["clients_per_node=2", f"results_dir={tmp_path}"]
    with pytest.raises(ConfigError, match="engine=local has no nodes"):
        engine.run(compose(given), given)
