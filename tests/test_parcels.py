"""Nodes that host several clients: equal bits, faults of one client alone, and what no reply can do."""

import json
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app
from florets.client_app.parcels import clients_of, opened
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines import engine
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.server_app.experiment import run_experiment
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
    items = [parcels.Item(kinds.TRAIN, "b", content(0)), parcels.Item(kinds.EVALUATE, "", content(1))]
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


@pytest.mark.parametrize(
    ("names", "rule"),
    [(["a", "b", "c"], "hosts 3 clients, more than clients_per_node=2"), (["a", "a"], "names"), (["=1"], "names")],
)
def test_a_node_hosts_no_more_than_it_may_and_names_them_apart(names: list[str], rule: str) -> None:
    with pytest.raises(MalformedMessage, match=rule):
        parcels.read_clients(parcels.pack_clients(parcels.Hosted(names, 0)), parcels.Hosting(2))


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


def test_a_node_that_does_not_say_whom_it_hosts_is_not_waited_for_forever() -> None:
    class Silent(LocalGrid):
        late = 3

        def pull_messages(self, message_ids: Any) -> list[Message]:
            asked = {one: self._waiting[one].metadata.dst_node_id for one in message_ids if one in self._waiting}
            return super().pull_messages([one for one, node in asked.items() if node != self.late])

    silent = Silent(app, 2)
    grid = ParcelGrid(silent, parcels.Hosting(3, 6), seconds=0.2)
    assert grid.get_node_ids() == []
    time.sleep(0.25)
    assert len(grid.get_node_ids()) == 3
    *_, late = shown = grid.get_node_ids()
    assert len(shown) == 4
    [reply] = grid.send_and_receive([Message(content(0), late, kinds.HELLO)], timeout=5)
    assert reply.error.reason == "it has not said in time which clients it hosts"
    silent.late = 0
    assert len(grid.get_node_ids()) == 6


def test_a_node_that_says_another_number_of_nodes_than_the_others_is_left_out_alone() -> None:
    class Lying(LocalGrid):
        says: parcels.Hosted

        def _deliver(self, message: Message) -> Message:
            if message.metadata.message_type == kinds.HOSTED and message.metadata.dst_node_id == 3:
                return Message(parcels.pack_clients(self.says), reply_to=message)
            return super()._deliver(message)

    config = compose(["num_clients=9", "k=1", "strategy=fedavg", "num_rounds=1", "quorum=0.5", "min_clients=4"])
    for Lying.says in (parcels.Hosted(["3", "4", "5"], 1), parcels.Hosted(["3", "4", "5"], 9)):
        strategy, _ = run_on(ParcelGrid(Lying(app, 3), parcels.Hosting(3, 9)), config, build_task(config))
        assert list(strategy.assignment) == ["0", "1", "2", "6", "7", "8"]
        assert strategy.federation.left_out == ["node 3"]


def test_a_nodes_folders_are_its_clients(tmp_path: Path) -> None:
    for name in ("ward-b", "ward-a", ".git"):
        (tmp_path / name).mkdir()
    node = {"data-dir": str(tmp_path), "client-id": "north", "clients-in-folders": True, "device": "cpu"}
    context = Context(1, 2, node, RecordDict(), {})
    found = clients_of(context, parcels.Hosting(5))
    assert list(found) == ["ward-a", "ward-b"]
    own = found["ward-b"].node_config
    assert own == {**node, "data-dir": str(tmp_path / "ward-b"), "client-id": "north/ward-b"}
    # Without the key, or in a run that knows of no hosts, the node is one client.
    assert list(clients_of(context, parcels.Hosting(1))) == [kinds.NO_KEY]
    for value, rule in ((True, "no data-dir"), ("yes", "must be true or false")):
        with pytest.raises(ValueError, match=f"clients-in-folders.*{rule}"):
            clients_of(Context(1, 2, {"clients-in-folders": value}, RecordDict(), {}), parcels.Hosting(5))
    with pytest.raises(ValueError, match="clients on this node=1000000000: this node does at most 100,000"):
        clients_of(Context(1, 2, {"partition-id": 0}, RecordDict(), {}), parcels.Hosting(10**9, 10**9))
    (tmp_path / "ward-c").symlink_to("/")
    with pytest.raises(ValueError, match="a link points outside"):
        clients_of(context, parcels.Hosting(5))


def test_folders_that_come_during_a_run_change_nobody_elses_data(tmp_path: Path) -> None:
    def called(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"config": ConfigRecord({"of": context.node_config["client-id"]})}), reply_to=message
        )

    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    context = Context(1, 2, {"data-dir": str(tmp_path), "clients-in-folders": "true"}, RecordDict(), {})
    items = [parcels.Item(kinds.TRAIN, name, content(0)) for name in ("c", "gone")]
    parcel = Message(parcels.pack(items, parcels.Hosting(5)), 2, kinds.PARCEL)
    here, gone = parcels.read_replies(opened(cast(ClientApp, called), parcel, context).content, 2)
    assert here == RecordDict({"config": ConfigRecord({"of": "c"})})
    assert gone == parcels.Failure("ValueError: this node hosts 3 clients, and no client gone")


def test_two_hospitals_train_on_the_wards_that_their_folders_are(tmp_path: Path) -> None:
    draw, nodes = np.random.default_rng(0), []
    for hospital, wards in (("north", ("a", "b")), ("south", ("a",)), ("west", ("a", "b", "c"))):
        for ward in wards:
            (tmp_path / hospital / ward).mkdir(parents=True)
            x, y = draw.integers(0, 256, (30, 1, 8, 8), dtype=np.uint8), np.arange(30) % 10
            np.savez(tmp_path / hospital / ward / "data.npz", x=x, y=y)
        nodes.append({"data-dir": str(tmp_path / hospital), "clients-in-folders": True, "client-id": hospital})
    config = compose(
        ["experiment=own_digits", f"data_dir={tmp_path}", "num_rounds=2", "min_clients=3", "quiet=true", "k=1"]
    )
    grid = ParcelGrid(LocalGrid(app, 3, nodes), parcels.Hosting(2))
    run_experiment(grid, config, tmp_path / "run")
    rows = (tmp_path / "run" / "clients.csv").read_text().splitlines()[1:]
    assert [row.partition(",")[0] for row in rows] == ["north/a", "north/b", "south/a"]
    # More wards than a node may host.
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["left_out"] == ["west"]


def test_engines_without_nodes_refuse_hosts(tmp_path: Path) -> None:
    given = ["clients_per_node=2", f"results_dir={tmp_path}"]
    with pytest.raises(ConfigError, match="engine=local has no nodes"):
        engine.run(compose(given), given)
