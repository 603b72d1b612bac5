"""Tables whose columns are in another order: read by the names in their headers, from hello to `florets predict`."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from safetensors import safe_open
from safetensors.numpy import load_file

from florets.client_app.app import app
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.server_app import main
from florets.server_app.build import build_models, build_task, message_settings
from florets.server_app.local_grid import LocalGrid
from florets.server_app.own_nodes import own_nodes
from florets.server_app.resume.checkpoint import Checkpoints
from florets.strategies.base.federation import Federation, FederationError
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.data.new_data import Form, read_labelled
from florets.task.data.own import own
from florets.task.wire import kinds

NAMES = ("age", "dose", "weight")
SETTINGS = (
    *("experiment=own_data", "strategy=fedavg", "min_clients=2", "num_rounds=3", "quiet=true", "task.model=linear"),
    *("task.data_options={regression: true, target: price}", "task.loss=squared_error", "train.optimizer=sgd"),
    *("task.partition_options={input_shape: [3], num_outputs: 1}", "train.learning_rate=0.1"),
    "train.local_epochs=20",
)


def table(path: Path, order: Sequence[str], seed: int = 0, n: int = 30, target: str = "price") -> None:
    """Write rows with price = 3 age - dose + weight / 2; `order` is that of the columns alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).standard_normal((n, 3)).round(4)
    rows = [dict(zip(NAMES, row, strict=True)) | {target: round(float(row @ [3, -1, 0.5]), 4)} for row in x]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, order, extrasaction="ignore", restval=0)
        writer.writeheader()
        writer.writerows(rows)


def folders(root: Path, **orders: Sequence[str]) -> Path:
    for seed, (name, order) in enumerate(orders.items()):
        table(root / name / "train.csv", order, seed)
        # Within one site the test table may have an order of its own as well.
        table(root / name / "test.csv", sorted(order), seed + 100)
    return root


def train(data: Path, results: Path, *more: str) -> Path:
    assert main.main([*SETTINGS, f"data_dir={data}", f"results_dir={results}", *more]) == 0
    (marker,) = results.rglob("rounds.jsonl")
    return marker.parent


def test_a_site_whose_columns_are_in_another_order_trains_on_the_same_features(tmp_path: Path) -> None:
    same = ("age", "dose", "weight", "price")
    straight = folders(tmp_path / "straight", north=same, south=same)
    turned = folders(tmp_path / "turned", north=same, south=("weight", "price", "dose", "age"))
    whole, other = train(straight, tmp_path / "a"), train(turned, tmp_path / "b")
    expected, found = (load_file(folder / "models.safetensors") for folder in (whole, other))
    assert all(np.array_equal(values, found[name]) for name, values in expected.items())
    np.testing.assert_allclose(found["0/1.weight"][0], [3, -1, 0.5], atol=0.1)
    for folder in (whole, other):
        with safe_open(folder / "models.safetensors", framework="np") as file:
            assert json.loads(file.metadata()["columns"]) == list(NAMES)


def test_test_results_are_of_the_agreed_order_in_a_process_for_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = LocalGrid._deliver

    def alone(grid: LocalGrid, message: Message) -> Message:
        # A SuperNode starts a process for each message: it remembers nothing of the last one.
        session.__init__()  # type: ignore[misc]
        return deliver(grid, message)

    monkeypatch.setattr(LocalGrid, "_deliver", alone)
    same = ("age", "dose", "weight", "price")
    turned = folders(tmp_path / "turned", north=same, south=("weight", "price", "dose", "age"))
    rows = (train(turned, tmp_path / "results") / "clients.csv").read_text().splitlines()
    losses = [float(row["test_loss"]) for row in csv.DictReader(rows)]
    assert len(losses) == 2
    assert max(losses) < 0.1


def test_the_lowest_keys_order_holds_unless_an_order_is_given(tmp_path: Path) -> None:
    data = folders(tmp_path / "data", a=("weight", "age", "price", "dose"), b=(*NAMES, "price"))
    np.savez(tmp_path / "data" / "b" / "data.npz", x=np.zeros((4, 3)), y=np.zeros(4))
    (tmp_path / "data" / "0").mkdir()
    (data / "b" / "data.npz").rename(data / "0" / "data.npz")
    first = train(data, tmp_path / "first")
    given = train(data, tmp_path / "given", "task.data_options.columns=[dose,weight,age]")
    for folder, order in ((first, ["weight", "age", "dose"]), (given, ["dose", "weight", "age"])):
        with safe_open(folder / "models.safetensors", framework="np") as file:
            assert json.loads(file.metadata()["columns"]) == order
    # The archive of client 0 has no names: it takes part by position.
    assert (first / "clients.csv").read_text().splitlines()[1].startswith("0,")


def test_another_set_of_names_is_refused_with_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folders(tmp_path / "data", a=(*NAMES, "price"), b=("age", "dosis", "weight", "price"))
    assert main.main([*SETTINGS, f"data_dir={data}", f"results_dir={tmp_path / 'r'}"]) == 1
    told = capsys.readouterr().err
    assert "1 of 2 clients could start: client b cannot take part: of the columns that the run's tables have" in told
    assert "its table lacks 'dose' and has 'dosis' beside them. Give all tables the same columns" in told
    # With enough others it costs the site its place, and the run's last line counts it.
    given = [f"data_dir={data}", f"results_dir={tmp_path / 'r'}", "min_clients=1"]
    assert main.main([*(key for key in SETTINGS if "min_clients" not in key), *given]) == 0
    assert "3 rounds in " in (last := capsys.readouterr().out.splitlines()[-2])
    assert last.endswith(" s, 1 node could not take part (b)")
    (log,) = (tmp_path / "r").rglob("run.log")
    assert "1 node could not take part: b" in log.read_text()


def test_two_tables_of_one_site_must_have_the_same_columns(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", (*NAMES, "price"))
    table(tmp_path / "test.csv", ("price", "weight", "dose", "age"))
    data = own(tmp_path, 0, 0, regression=True)
    assert data.columns == NAMES
    np.testing.assert_array_equal(data.x_train, data.x_test)
    np.testing.assert_array_equal(data.y_train, data.y_test)
    table(tmp_path / "test.csv", (*NAMES, "height", "price"))
    with pytest.raises(ValueError, match=r"test\.csv: of the columns of train\.csv it has 'height' beside them"):
        own(tmp_path, 0, 0, regression=True)


def test_the_target_is_the_last_column_that_is_no_input(tmp_path: Path) -> None:
    table(tmp_path / "data.csv", ("age", "price", "dose", "weight"))
    assert own(tmp_path, 0, 0, regression=True).columns == ("age", "price", "dose")
    data = own(tmp_path, 0, 0, columns=list(NAMES), regression=True)
    np.testing.assert_allclose(data.y_train, data.x_train @ [3, -1, 0.5], atol=1e-3)
    with pytest.raises(ValueError, match="has no column to predict beside the inputs"):
        own(tmp_path, 0, 0, columns=["age", "price", "dose", "weight"])


def nodes_grid(data: Path) -> tuple[LocalGrid, ConfigRecord]:
    config = compose([*SETTINGS, f"data_dir={data}"])
    nodes = own_nodes(config)
    return LocalGrid(app, len(nodes), nodes), message_settings(config, build_task(config))


def online(grid: LocalGrid, *nodes: int) -> None:
    grid.get_node_ids = lambda: list(nodes)  # type: ignore[method-assign]


def test_a_late_site_takes_the_agreed_order_and_is_refused_with_other_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = folders(
        tmp_path, a=("price", *reversed(NAMES)), b=(*NAMES, "price"), c=("dose", "weight", "age", "price"),
        d=("age", "weight", "height", "price"), e=("age", "weight", "price"),
    )  # fmt: skip
    grid, settings = nodes_grid(data)
    federation = Federation(None, 1.0, min_clients=1)
    online(grid, 3, 4)
    federation.refresh(grid, settings)
    assert federation.columns.names == NAMES
    # Client a has the lowest key, but the models know the order already.
    online(grid, 2, 3, 4, 5, 6)
    federation.refresh(grid, settings)
    assert federation.columns.names == NAMES
    assert [client.key for client in federation.online()] == ["a", "b", "c"]
    assert "client d cannot take part: " in caplog.text
    assert "its table lacks 'dose' and has 'height' beside them" in caplog.text
    assert "inputs have shape (2,), but the federation's is (3,)" in caplog.text
    assert "Its columns are 'age', 'weight'." in caplog.text
    assert federation.left_out == ["d", "e"]
    assert kinds.COLUMNS not in settings


def test_the_agreed_order_goes_on_with_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folders(tmp_path / "data", a=(*NAMES, "price"), b=("weight", "price", "dose", "age"))
    whole = load_file(train(data, tmp_path / "whole") / "models.safetensors")
    save = Checkpoints.save

    def killed(self: Checkpoints, checkpoint):  # type: ignore[no-untyped-def]
        save(self, checkpoint)
        if checkpoint.server_round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        assert main.main([*SETTINGS, f"data_dir={data}", f"results_dir={tmp_path / 'r'}"]) == 130
    (folder,) = (path.parent for path in (tmp_path / "r").rglob("config.yaml"))
    loaded = Checkpoints(folder).load()
    assert loaded is not None
    assert loaded.columns == NAMES
    # The site whose order held comes back with another one; the models' holds.
    for name in ("train", "test"):
        table(data / "a" / f"{name}.csv", ("dose", "price", "age", "weight"), 0 if name == "train" else 100)
    assert main.main([f"resume={folder}"]) == 0
    found = load_file(folder / "models.safetensors")
    assert all(np.array_equal(values, found[name]) for name, values in whole.items())


def test_a_table_that_changes_in_the_middle_of_a_run_is_named(tmp_path: Path) -> None:
    data = folders(tmp_path, a=(*NAMES, "price"), b=("weight", "price", "dose", "age"))
    grid, settings = nodes_grid(data)
    config = compose([*SETTINGS, f"data_dir={data}"])
    models = build_models(config, build_task(config))
    push = grid.push_messages

    def changed(messages):  # type: ignore[no-untyped-def]
        if messages[0].metadata.message_type == kinds.TRAIN:
            table(data / "b" / "train.csv", ("weight", "price", "size", "age"))
            table(data / "b" / "test.csv", ("weight", "price", "size", "age"))
        return push(messages)

    grid.push_messages = changed  # type: ignore[method-assign]
    strategy = FedAvg(min_clients=2, quorum=1.0)
    with pytest.raises(FederationError, match=r"agreed on: it lacks 'dose' and has 'size' beside them"):
        strategy.start(grid, ArrayRecord(dict(models)), num_rounds=1, train_config=settings)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    data = folders(tmp_path / "data", a=(*NAMES, "price"), b=("weight", "price", "dose", "age"))
    return train(data, tmp_path / "results")


def predicted(path: Path) -> list[float]:
    return [float(row["prediction"]) for row in csv.DictReader(path.read_text().splitlines())]


def test_predictions_do_not_depend_on_the_order_of_the_columns(finished: Path, tmp_path: Path) -> None:
    orders = {"as": (*NAMES, "price"), "turned": ("price", "weight", "id", "age", "dose"), "alone": NAMES[::-1]}
    found = {}
    for name, order in orders.items():
        table(tmp_path / f"{name}.csv", order, 7)
        target = tmp_path / f"{name}-predicted.csv"
        given = [f"run={finished}", f"data={tmp_path / name}.csv", f"output={target}"]
        assert main.main(["predict", *given]) == 0
        found[name] = predicted(target)
    assert found["as"] == found["turned"] == found["alone"]
    x = np.random.default_rng(7).standard_normal((30, 3)).round(4)
    np.testing.assert_allclose(found["as"], x @ [3, -1, 0.5], atol=0.1)


def test_a_reordered_file_is_assigned_by_its_names(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for name, order in {"as": (*NAMES, "price"), "turned": ("price", *NAMES[::-1])}.items():
        table(tmp_path / f"{name}.csv", order, 7)
        assert main.main(["assign", f"run={finished}", f"data={tmp_path / name}.csv"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    table(tmp_path / "other.csv", ("age", "size", "weight", "price"), 7)
    assert main.main(["assign", f"run={finished}", f"data={tmp_path / 'other.csv'}"]) == 2
    assert "has no column 'dose'; its columns are age, size, weight, price." in capsys.readouterr().err
    assert main.main(["predict", f"run={finished}", f"data={tmp_path / 'other.csv'}"]) == 2
    assert "has no column 'dose'" in capsys.readouterr().err
    # A form of the data that leaves the target open.
    wide = tmp_path / "wide.csv"
    table(wide, (*NAMES, "price", "id"), 7)
    assert main.main(["assign", f"run={finished}", f"data={wide}"]) == 0
    with pytest.raises(
        ValueError, match=r"wide\.csv has the columns price, id beside the inputs: say with target=<col"
    ):
        read_labelled(wide, Form(columns=NAMES, regression=True))


def test_assign_says_where_its_figure_includes_training_data(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "Client b took part in this run: the figures include data that the models were trained on."
    for data, told in (("data/b/train.csv", True), ("data/b/test.csv", False), ("train.csv", False)):
        table(tmp_path / "train.csv", (*NAMES, "price"), 9)
        assert main.main(["assign", f"run={finished}", f"data={tmp_path / data}"]) == 0
        assert (says in capsys.readouterr().out.splitlines()) is told
    (finished / "clients.csv").unlink()
    assert main.main(["assign", f"run={finished}", f"data={tmp_path / 'data/b/train.csv'}"]) == 0
    assert "took part" not in capsys.readouterr().out
