"""Fit with Flower: the app's parts in other Flower apps, the FAB, and the in-process Grid."""

import ast
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import ServerApp

import florets
from florets.client_app.app import FloretsApp
from florets.client_app.app import app as bare_app
from florets.client_app.app import app as client_app
from florets.client_app.batching import in_blocks
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.flower_run import write_app
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.base.models import Models
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds
from tests.flower_tools import build_fab_from_disk, get_project_config, load_app, publish_check, validate
from tests.own_strategy import EvenOdd
from tests.pages import blocks
from tests.test_architecture import IN_BUNDLE, OURS

ROOT = Path(__file__).parents[1]


def test_clove_runs_in_the_pages_server_app(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block.code for block in blocks(ROOT / "docs" / "extending.md") if block.how == "server.py"]
    names: dict[str, Any] = {}
    exec(compile(code, "server.py", "exec"), names)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    names["app"](LocalGrid(client_app, 20), context)
    found = ast.literal_eval(capsys.readouterr().out)
    assert adjusted_rand_index([client // 4 for client in range(20)], [found[key] for key in sorted(found)]) == 1.0


def test_a_strategy_is_prepared_with_its_own_checks_and_its_number_of_models() -> None:
    strategy = EvenOdd(k=3, averaging="gradients", swap_every=4)
    models, _ = florets.prepare("digits_label_skew", strategy=strategy)
    assert Models(models).count == 3
    with pytest.raises(ConfigError, match="swap_every=4: there are num_rounds=2"):
        florets.prepare("digits_label_skew", strategy=strategy, num_rounds=2)


# Flower's own build step uses a name that its path library is about to drop.
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
@pytest.mark.slow
def test_flower_hub_takes_the_app_and_its_bundle_holds_the_apps_alone(tmp_path: Path) -> None:
    files, noted = publish_check(ROOT)
    assert noted == {"fab_format_version": 1, "flwr_version_min": "1.41", "flwr_version_target": "1.42.0"}
    assert len(files) < 900  # of 1,000
    taken = {path.relative_to(ROOT).as_posix() for path in files}
    parts = {
        path
        for folder in ("florets", *OURS)
        for path in (ROOT / folder).rglob("*.*")
        if path.parent.name != "__pycache__"
    }
    left_out = {path.relative_to(ROOT).as_posix() for path in parts if path.suffix not in (".csv", ".png")} - taken
    # A copy from there holds the whole package; the marker is for type checkers.
    assert left_out == {"florets/py.typed"}
    fab = build_fab_from_disk(ROOT)
    names = set(zipfile.ZipFile(io.BytesIO(fab)).namelist())
    folders = {"florets", *IN_BUNDLE}
    assert {name.split("/")[0] for name in names} == {*folders, "pyproject.toml", "README.md", "LICENSE", ".info"}
    assert {name for name in names if name.endswith((".py", ".yaml"))} == {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for end in ("py", "yaml")
        for path in (ROOT / folder).rglob(f"*.{end}")
    }
    # It travels to every node.
    assert len(fab) < 13 * 2**18
    # Flower takes an unpacked bundle as an app, too.
    with zipfile.ZipFile(io.BytesIO(fab)) as packed:
        packed.extractall(tmp_path)
    assert set(zipfile.ZipFile(io.BytesIO(build_fab_from_disk(tmp_path))).namelist()) == names


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_flower_takes_the_apps_description_alone(tmp_path: Path) -> None:
    fab = build_fab_from_disk(write_app(tmp_path / "app"))
    assert zipfile.ZipFile(io.BytesIO(fab)).namelist() == ["pyproject.toml", ".info/CONTENT"]


def test_the_components_are_plain_assignments_that_flower_finds() -> None:
    components = get_project_config(ROOT)["tool"]["flwr"]["app"]["components"]
    assert all(validate(reference, project_dir=ROOT) == (True, None) for reference in components.values())
    assert isinstance(load_app(components["serverapp"], RuntimeError, ROOT), ServerApp)
    assert isinstance(load_app(components["clientapp"], RuntimeError, ROOT), ClientApp)


def test_the_local_grid_turns_a_clients_exception_into_an_error_reply() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError(f"node {context.node_id}")

    grid = LocalGrid(app, 2)
    messages = [Message(RecordDict({"config": ConfigRecord()}), node, "train") for node in (2, 3, 99)]
    replies = grid.send_and_receive(messages)
    assert [reply.error.reason for reply in replies] == ["ValueError: node 2", "ValueError: node 3", "no such node"]
    assert [reply.metadata.reply_to_message_id for reply in replies] == [m.metadata.message_id for m in messages]


CONFIG = compose(["num_clients=4", "k=2", "task.num_clusters=2", "task.model_options.hidden=[8]", "num_rounds=2"])
TASK = build_task(CONFIG)
SETTINGS = message_settings(CONFIG, TASK)


def run(app: FloretsApp, strategy: Any, k: int = 1) -> ArrayRecord:
    start = build_models(replace(CONFIG, k=k), TASK)
    found = strategy.start(LocalGrid(app, 4), start, num_rounds=2, train_config=SETTINGS)
    return ArrayRecord(dict(found.arrays))


def test_mods_are_called_around_every_handler_in_their_order() -> None:
    seen: list[str] = []

    def inner(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        seen.append(f"inner {message.metadata.message_type}")
        return call_next(message, context)

    def outer(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        seen.append("outer")
        return call_next(message, context)

    models = run(FloretsApp(mods=[outer, message_size_mod, inner]), CLoVE(k=2), k=2)
    assert seen[::2] == ["outer"] * (len(seen) // 2)
    assert {text.removeprefix("inner ") for text in seen[1::2]} == {
        *(kinds.HELLO, kinds.LOSSES, kinds.TRAIN, kinds.EVALUATE)
    }
    # What only looks on changes nothing.
    assert [a.data for a in models.values()] == [a.data for a in run(bare_app, CLoVE(k=2), k=2).values()]


def test_a_mod_that_clips_updates_clips_them() -> None:
    clip = LocalDpMod(clipping_norm=1e-6, sensitivity=1e-12, epsilon=1.0, delta=0.5)

    def training(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # Flower's mod wants a model in every message.
        is_training = message.metadata.message_type == kinds.TRAIN
        return clip(message, context, call_next) if is_training else call_next(message, context)

    start = build_models(replace(CONFIG, k=1), TASK).to_numpy_ndarrays()
    clipped, free = (run(app, FedAvg()).to_numpy_ndarrays() for app in (FloretsApp(mods=[training]), bare_app))

    def moved(models: list[Any]) -> float:
        return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(models, start, strict=True))))

    # Two rounds, to the rounding of float32.
    assert moved(clipped) < 3e-6
    assert moved(free) > 1e-2


def test_clients_of_an_app_with_mods_are_not_computed_together() -> None:
    grid = LocalGrid(FloretsApp(mods=[message_size_mod]), 4, None, in_blocks)
    with pytest.raises(ConfigError, match="batch_clients=4: the ClientApp has mods"):
        grid.choose_blocks(replace(CONFIG, batch_clients=4), TASK)
    assert grid.choose_blocks(replace(CONFIG, batch_clients="auto"), TASK).batch_clients == "off"
