"""Caps of a node: hostile messages against the real handlers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from florets.client_app import app as deadline
from florets.client_app import caps
from florets.client_app.app import app
from florets.client_app.session import session
from florets.engines.local_grid import LocalGrid
from florets.strategies.cfl_gp.messages import TRAIN_PROBE
from florets.strategies.shared.messages import QUERY_FOLDS
from florets.task.data.tables.declaration import NODE_FILE
from florets.task.spec import TaskSpec
from florets.task.wire import kinds
from florets.zoo.fedem import TRAIN_MIXTURE
from florets.zoo.fedpac import TRAIN_SPLIT
from florets.zoo.flux import DESCRIPTOR
from florets.zoo.k_fed import KMEANS
from florets.zoo.pacfl import SEND_VECTORS
from tests.fakes import message_to

SPEC = TaskSpec(
    data="own",
    partition="own",
    model="mlp",
    loss="cross_entropy",
    num_clients=1,
    num_clusters=0,
    seed=0,
    data_dir="",
    partition_options={"input_shape": [3], "num_outputs": 2},
    model_options={"hidden": [4]},
)
TRAIN = {"learning-rate": 0.1, "local-epochs": 1.0, "batch-size": 4, kinds.SERVER_ROUND: 1}


@pytest.fixture
def node(tmp_path: Path) -> dict[str, Any]:
    """Return the node config of a real node with four samples."""
    np.savez(tmp_path / "data.npz", x=np.eye(8, 3), y=np.arange(8) % 2)
    session.adopt(None)
    return {"data-dir": str(tmp_path)}


def sent(
    node: Mapping[str, Any],
    kind: str,
    settings: Mapping[str, Any] = {},
    spec: TaskSpec = SPEC,
    records: Mapping[str, ArrayRecord] | None = None,
) -> RecordDict:
    LocalGrid(app, 1)  # lets messages be built
    config = ConfigRecord({kinds.TASK: spec.to_json(), **TRAIN, **settings})
    content = RecordDict({kinds.CONFIG: config, kinds.ARRAYS: model(), **(records or {})})  # type: ignore[dict-item]
    return app(message_to(content, 2, kind), Context(1, 2, dict(node), RecordDict(), {})).content


def model(hidden: int = 4, copies: int = 0) -> ArrayRecord:
    shapes = {"1.weight": (hidden, 3), "1.bias": (hidden,), "3.weight": (2, hidden), "3.bias": (2,)}
    prefixes = [f"{index}/" for index in range(copies)] or [""]
    return ArrayRecord({p + n: Array(np.ones(s, np.float32)) for p in prefixes for n, s in shapes.items()})


KIND_OF = {
    kinds.FINE_TUNE_EPOCHS: kinds.EVALUATE,
    kinds.LOSS_BATCH: kinds.LOSSES,
    kinds.LOCAL_CLUSTERS: KMEANS,
    kinds.DIMENSIONS: DESCRIPTOR,
    kinds.CLASSES: DESCRIPTOR,
    kinds.VECTORS: SEND_VECTORS,
    kinds.SHARES: TRAIN_MIXTURE,
    kinds.HANDLERS: kinds.HELLO,
    kinds.PROFILE_LAYERS: TRAIN_PROBE,
    kinds.HEAD: TRAIN_SPLIT,
    kinds.SENT_LAYERS: kinds.TRAIN_ESTIMATE,
    **dict.fromkeys((kinds.NUM_FOLDS, kinds.FOLD_SIZE, kinds.FOLD_STEPS, kinds.FOLD_WIDTH), QUERY_FOLDS),
}


@pytest.mark.parametrize("key", caps.SETTINGS)
def test_a_setting_above_its_cap_is_refused(key: str, node: dict[str, Any]) -> None:
    cap = caps.SETTINGS[key]
    value = cap.most + 1
    with pytest.raises(ValueError, match=rf"^{key}={value}: this node does at most {cap.most:,} .* set {cap.key} in"):
        sent(node, KIND_OF.get(key, kinds.TRAIN), {key: value})


@pytest.mark.parametrize("key", caps.LISTS)
def test_a_list_above_its_cap_is_refused(key: str, node: dict[str, Any]) -> None:
    cap = caps.LISTS[key]
    one: Any = 0.5 if key == kinds.SHARES else "x"
    with pytest.raises(ValueError, match=rf"^length of {key}=4: this node does at most 3 .* set {cap.key} in"):
        sent({**node, cap.key: 3}, KIND_OF.get(key, kinds.TRAIN), {key: [one] * 4})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_clients": 100_001}, "max-columns"),
        ({"data_options": {"image_size": 4_097}}, "max-dimensions"),
        ({"partition_options": {"input_shape": [3], "num_outputs": 100_001}}, "max-columns"),
        ({"model_options": {"hidden": [1_000_000, 1_000]}}, "max-parameters"),
        ({"model": "x" * 4_000_001}, "max-task-length"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_task_above_a_cap_is_refused_before_work(change: dict[str, Any], key: str, node: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"this node does at most .* set {key} in the node config"):
        sent(node, kinds.TRAIN, spec=replace(SPEC, **change))


def one(shape: tuple[int, ...], name: str) -> ArrayRecord:
    return ArrayRecord({name: Array(np.zeros(shape, np.float32))})


@pytest.mark.parametrize("record", [kinds.ARRAYS, kinds.PROBE])
def test_models_that_are_too_many_or_too_large_are_refused(record: str, node: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^models in '{record}'=3: this node does at most 2 "):
        sent({**node, "max-models": 2}, kinds.TRAIN_SELECT, records={record: model(copies=3)})
    with pytest.raises(ValueError, match=rf"^parameters of a model in '{record}'=32: this node does at most 26 "):
        sent({**node, "max-parameters": 26}, kinds.TRAIN_SELECT, records={record: model(5, copies=2)})


def test_an_owner_raises_and_lowers_a_cap(node: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^local-epochs=3: this node does at most 2.5 \(passes"):
        sent({**node, "max-epochs": 2.5}, kinds.TRAIN, {"local-epochs": 3})
    assert sent({**node, "max-epochs": 20_000}, kinds.TRAIN, {"local-epochs": 10_001, "local-steps": 1})


@pytest.mark.parametrize("value", ["many", 0])
def test_a_cap_that_is_no_number_stops_the_node(value: object, node: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"this node's config has max-epochs=.* must be a number above 0"):
        sent({**node, "max-epochs": value}, kinds.TRAIN)


def test_a_simulation_has_no_caps() -> None:
    session.adopt(None)
    spec = replace(SPEC, data="digits", partition="rotation", num_clients=4, num_clusters=2, partition_options={})
    context = {"partition-id": 0, "num-partitions": 4}
    assert sent(context, kinds.HELLO, {"local-epochs": 10**9}, spec)


def test_the_time_of_a_message_has_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    after: list[float] = []
    timer = SimpleNamespace(
        dump_traceback_later=lambda seconds, exit: after.append(seconds), cancel_dump_traceback_later=lambda: None
    )
    monkeypatch.setattr(deadline, "faulthandler", timer)
    monkeypatch.setattr(deadline, "has_process_of_its_own", lambda: True)
    message: Any = SimpleNamespace(metadata=SimpleNamespace(ttl=10**9))
    for config in ({}, {"max-seconds": 60}):
        deadline.within_deadline(message, Context(1, 2, config, RecordDict(), {}), lambda message, _: message)  # type: ignore[arg-type]
    assert after == [1_000_000, 60]


def test_the_file_of_a_data_folder_counts_on_a_real_node(node: dict[str, Any]) -> None:
    file = Path(node["data-dir"]) / NODE_FILE
    file.write_text("max-epochs = 1\n")
    with pytest.raises(ValueError, match="this node does at most 1 "):
        sent(node, kinds.TRAIN, {"local-epochs": 2})
    for text, error in {
        "max-epochs = 1": "max-epochs has one value in the SuperNode's --node-config and another in node.toml",
        "max_epochs = 1": "node.toml: max_epochs: there is no such key. Did you mean max-epochs?",
    }.items():
        file.write_text(text)
        with pytest.raises(ValueError, match=re.escape(error)):
            sent({**node, "max-epochs": 5}, kinds.TRAIN, {"local-epochs": 2})
