"""Edited code of one's own: a run records what it imports, and the next call uses the new code."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import florets
from florets.commands.main import main
from florets.papers.cells import places
from florets.papers.item import find_item
from florets.server_app.own_code import changed_files
from florets.task.edited_modules import reload_edited
from florets.task.fingerprint import file_hashes
from tests.test_resume import SMALL, killed, resumed

STRATEGY = """
from florets.strategies.fedavg.strategy import FedAvg
from {helper} import WHAT

class Mine(FedAvg):
    \"\"\"FedAvg, with code that a test edits.\"\"\"
"""
HELPER, NAME = "helper_of_a_test", "strategy_of_a_test"
GIVEN = [*SMALL, f"strategy={NAME}:Mine", "num_rounds=3"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the working folder, which holds a strategy and a module that it imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{NAME}.py").write_text(STRATEGY.format(helper=HELPER))
    (tmp_path / f"{HELPER}.py").write_text("WHAT = 1\n")
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    """Let modules be imported anew, as another command would."""
    for name in [name for name in sys.modules if "_of_a_test" in name]:
        del sys.modules[name]
    importlib.invalidate_caches()


def edit(path: Path, more: str = "# mended\n") -> None:
    path.write_text(path.read_text() + more)
    _forget()


def test_the_files_behind_an_import_path_are_those_that_it_imports_and_nobody_installed(folder: Path) -> None:
    package = folder / "package_of_a_test" / "deep"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise RuntimeError('nothing is imported')\n")
    (package / "a.py").write_text("from . import b\nimport numpy, florets.task\n")
    (package / "b.py").write_text("def late():\n    import lone_of_a_test.x\n")
    # No Python, and still a file of the code.
    (folder / "lone_of_a_test.py").write_text("import helper_of_a_test, json\n)")
    found = file_hashes(["package_of_a_test.deep.a:f", "nowhere_of_a_test:g", "florets.task.models:mlp"])
    package_files = {f"package_of_a_test/{name}" for name in ("__init__.py", "deep/a.py", "deep/b.py")}
    assert found.keys() == {*package_files, "lone_of_a_test.py"}
    (folder / "lone_of_a_test.py").write_text("import helper_of_a_test, json\n")
    again = file_hashes(["package_of_a_test.deep.a:f"])
    assert again.keys() - found.keys() == {"helper_of_a_test.py"}
    assert changed_files(found, again) == ["helper_of_a_test.py", "lone_of_a_test.py"]
    assert not file_hashes(["flwr.app:Context"])


def test_a_run_that_goes_on_with_other_code_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = killed(monkeypatch, folder / "killed", GIVEN, 2)
    copy = shutil.copytree(run, folder / "unchanged" / "seed-0")
    assert resumed(copy, "trust=true") == copy
    edit(folder / f"{HELPER}.py")
    resumed(run, "trust=true")
    warning = f"the run's code has changed since it began: {HELPER}.py"
    assert json.loads((run / "summary.json").read_text())["warnings"] == [warning]


@pytest.mark.slow
def test_a_table_runs_cells_of_edited_code_again_and_those_of_ours_never(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "item.yaml").write_text(
        f"""
title: Two strategies
seeds: 1
overrides: {json.dumps([*SMALL, "num_rounds=1", "checkpoint_every=0"])}
rows: {{all: {{label: all, overrides: []}}}}
columns:
  ours: {{label: ours, overrides: [strategy=fedavg]}}
  mine: {{label: mine, overrides: ["strategy={NAME}:Mine"]}}
measures: [accuracy]
"""
    )

    def told(*more: str) -> str:
        assert main(["reproduce", "item.yaml", *more]) == 0
        return "".join(capsys.readouterr())

    def stored_as() -> list[str]:
        item = find_item(str(folder / "item.yaml"))
        return [place.settings for place in places(item, {}, folder)]

    ours, mine = stored_as()
    assert "2 cells to run" in told()
    assert "0 cells to run" in told()
    edit(folder / f"{HELPER}.py")
    assert f"not run since its code changed ({HELPER}.py)" in told("--table")
    text = told()
    assert "1 cell to run" in text
    assert f"1 cell run again: not run since its code changed ({HELPER}.py)" in text
    assert "0 cells to run" in told()
    # The process was killed before it could leave its record: the run's folder says the same.
    for record in folder.rglob("seed-0.json"):
        record.unlink()
    assert "0 cells to run" in told()
    edit(folder / f"{NAME}.py")
    assert "1 cell to run" in told()
    # Cells that are stored beside a page go by this name.
    now = stored_as()
    assert (now[0] == ours, now[1] == mine) == (True, False)


SHIFTING = """
from dataclasses import dataclass
from florets import Round, State, Steps, Strategy
from florets.strategies.settings import ManyModels
from helper_of_edits import SHIFT

@dataclass(frozen=True)
class ShiftSettings(ManyModels):
    \"\"\"Clients take the models in turn.\"\"\"

class Shift(Strategy[ShiftSettings, State]):
    \"\"\"Client i trains model i + SHIFT.\"\"\"

    Settings = ShiftSettings

    def round(self, r: Round) -> Steps:
        updates = yield r.train({client.key: (client.number * SHIFT) % r.models.count for client in r.participants})
        return r.average(updates)
"""
MODULES = ("strategy_of_edits", "helper_of_edits", "bystander_of_edits")


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "strategy_of_edits.py").write_text(SHIFTING)
    (tmp_path / "helper_of_edits.py").write_text("SHIFT = 1\n")
    (tmp_path / "bystander_of_edits.py").write_text("def net(input_shape, num_outputs): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)
    reload_edited()


def test_a_run_after_an_edit_uses_the_new_code(edited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> tuple[list[str], bytes]:
        found = florets.run(
            "quickstart",
            strategy="strategy_of_edits:Shift",
            num_clients=4,
            num_rounds=1,
            k=2,
            task={"num_clusters": 2},
            pictures=False,
            loss_matrix=False,
            quiet=True,
            results_dir=edited / "results",
        )
        return (found.folder / "clients.csv").read_text().splitlines(), (
            found.folder / "models.safetensors"
        ).read_bytes()

    first, module = run(), sys.modules["strategy_of_edits"]
    assert run() == first
    assert sys.modules["strategy_of_edits"] is module
    # As many letters, within the second: Python's own check would take the compiled code for new.
    (edited / "helper_of_edits.py").write_text("SHIFT = 2\n")
    capsys.readouterr()
    second = run()
    assert "florets: reloaded edited modules: helper_of_edits, strategy_of_edits\n" in capsys.readouterr().err
    assert second[1] != first[1]
    assert sys.modules["strategy_of_edits"] is not module
    # Whoever holds the old module sees what is in the new one.
    assert module.SHIFT == 2
    assert module.Shift is sys.modules["strategy_of_edits"].Shift
