"""Fit with Flower: the app's parts in other Flower apps, the FAB, and the in-process Grid."""

import ast
import io
import pickle
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.common.config import get_project_config
from flwr.serverapp import ServerApp
from flwr.supercore.object_ref import load_app, validate

import florets
from florets.client_app.app import app as client_app
from florets.conf.problems import ConfigError
from florets.engines.flower_run import write_app
from florets.engines.local_grid import LocalGrid
from florets.server_app.app import app as server_app
from florets.strategies.base.federation import WrongNodeCount
from florets.strategies.base.models import Models
from florets.strategies.core.metrics import adjusted_rand_index
from tests.own_strategy import EvenOdd
from tests.pages import blocks

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
def test_the_fab_holds_the_apps_and_their_settings_and_no_results_or_tests() -> None:
    fab = build_fab_from_disk(ROOT)
    names = set(zipfile.ZipFile(io.BytesIO(fab)).namelist())
    own = ("api", "commands", "reports", "server_app", "client_app", "strategies", "task", "conf", "deploy")
    folders = ("florets", *own)
    expected = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".info/CONTENT"}
    for folder in folders:
        found = [path for end in ("py", "yaml") for path in (ROOT / folder).rglob(f"*.{end}")]
        expected |= {path.relative_to(ROOT).as_posix() for path in found}
    # What a pattern for results folders would swallow.
    assert {"server_app/recorder.py", "server_app/checkpoint.py", "server_app/build.py"} <= expected
    assert expected <= names
    # An exclusion of ours would have to fit every app folder: Flower refuses one that matches no file.
    others = {name for name in names - expected if "/" in name}
    assert {name.split("/")[0] for name in others} <= {"docs", "tests", "benchmarks", "examples"}
    assert not [name for name in names if name.startswith("tests/test_")]
    # Sources and pages are small; one results folder or data set would be more than the rest.
    assert len(fab) < 6 * 2**20


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_flower_takes_the_apps_description_alone(tmp_path: Path) -> None:
    fab = build_fab_from_disk(write_app(tmp_path / "app"))
    assert zipfile.ZipFile(io.BytesIO(fab)).namelist() == ["pyproject.toml", ".info/CONTENT"]


def test_results_and_builds_are_ignored_in_the_projects_folder_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for place in ("results", "server_app/results", "outputs", "task/outputs", "build", "server_app/build", "dist"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert set(listed.stdout.split()) == {
        *(".gitignore", "server_app/build/file.py", "server_app/results/file.py", "task/outputs/file.py")
    }


def test_the_components_are_plain_assignments_that_flower_finds() -> None:
    components = get_project_config(ROOT)["tool"]["flwr"]["app"]["components"]
    assert all(validate(reference, project_dir=ROOT) == (True, None) for reference in components.values())
    assert isinstance(load_app(components["serverapp"], RuntimeError, ROOT), ServerApp)
    assert isinstance(load_app(components["clientapp"], RuntimeError, ROOT), ClientApp)


def test_the_wrong_number_of_nodes_is_answered_with_the_users_own_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("florets.server_app.app.log_to_console", lambda: None)
    run_config = {"seed": 3, "results-dir": str(tmp_path), "experiment": "", "num-clients": 5, "k": 2}
    given = {**run_config, "overrides": "task.num_clusters=2", "config-json": "", "quorum": -1.0}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=given)
    settings = f"""seed=3 results-dir="{tmp_path}" num-clients=5 k=2 overrides="task.num_clusters=2\""""
    with pytest.raises(ConfigError) as error:
        server_app(LocalGrid(client_app, 3), context)
    assert str(error.value) == (
        "this experiment has num_clients=5, but Flower started 3 SuperNodes. Give the same number to both: "
        f"flwr run . --stream --run-config '{settings}' "
        '--federation-config "num-supernodes=5 client-resources-num-cpus=1"'
    )
    assert caplog.messages[-1] == str(error.value)


def test_the_wrong_number_of_nodes_keeps_its_numbers_from_process_to_process() -> None:
    error = pickle.loads(pickle.dumps(WrongNodeCount(5, 3)))
    assert (error.expected, error.found, str(error)) == (5, 3, str(WrongNodeCount(5, 3)))


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


def test_the_local_grid_delivers_each_message_once() -> None:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    grid = LocalGrid(app, 1)
    ids = grid.push_messages([Message(RecordDict(), 2, "query")])
    assert len(grid.pull_messages(ids)) == 1
    assert grid.pull_messages(ids) == []


@pytest.mark.parametrize("count", [1, 3])
def test_nodes_get_the_partitions_in_order(count: int) -> None:
    app = ClientApp()
    seen: list[object] = []

    @app.query()
    def query(message: Message, context: Context) -> Message:
        seen.append((context.node_config["partition-id"], context.node_config["num-partitions"]))
        return Message(message.content, reply_to=message)

    grid = LocalGrid(app, count)
    grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])
    assert seen == [(i, count) for i in range(count)]


@pytest.mark.slow
def test_the_apps_are_found_while_another_thread_imports_the_package() -> None:
    # A package is in sys.modules before its own code has run: what looks for one of its parts then finds none.
    components = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["components"]
    code = (
        "import sys, types; from flwr.supercore.object_ref import validate;"
        "half = types.ModuleType('florets'); half.__path__ = []; half.__spec__ = __import__('importlib.util', "
        "fromlist=['util']).find_spec('florets'); sys.modules['florets'] = half;"
        f"found = [validate(name) for name in {list(components.values())}];"
        "assert found == [(True, None)] * 2, found"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
