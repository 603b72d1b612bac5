"""Edited code of one's own: a run records what it imports, and results of other code do not count as its own."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.papers.cells import places
from florets.papers.items import read_item
from florets.server_app.app import read_run_config
from florets.server_app.own_code import CODE, changed_files, changed_words, code_on_disk
from florets.server_app.resume import read_resume
from florets.server_app.run_models import load_run
from florets.task.fingerprint import file_hashes
from tests.test_resume import SMALL, killed, resumed, straight

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
    # Of what is installed the package counts that is named, and not all that it imports.
    assert {name.partition("/")[0] for name in file_hashes(["flwr.app:Context"])} == {"flwr"}


def test_what_a_configuration_names_counts_wherever_it_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_on_disk(compose(["strategy=clove"])) == {}
    own = ["task.model=tests.own_functions:net", "strategy=clove", "experiment=quickstart"]
    assert "tests/own_functions.py" in code_on_disk(compose(own))
    edit(folder / f"{NAME}.py", "    client_handlers = ('handler_of_a_test:f',)\n")
    (folder / "handler_of_a_test.py").write_text("")
    info = folder / "site" / "x-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[florets.strategies]\nmine = {NAME}:Mine\n")
    monkeypatch.syspath_prepend(info.parent)
    for name in ("mine", f"{NAME}:Mine"):
        found = code_on_disk(compose([f"strategy={name}"]))
        assert sorted(found) == ["handler_of_a_test.py", f"{HELPER}.py", f"{NAME}.py"]


def test_names_in_a_line_are_few_and_printable() -> None:
    assert changed_words(["a.py", "\x1b[2J"]) == "a.py, '\\x1b[2J'"
    assert changed_words([f"{i}.py" for i in range(8)]) == "0.py, 1.py, 2.py, 3.py, 4.py and 3 more"
    # A record from before there were hashes counts as it is; one that is damaged does not.
    assert (changed_files(None, {"a.py": "1"}), changed_files([], {"a.py": "1"})) == ([], ["a.py"])


def test_a_sweep_that_goes_on_runs_what_was_edited_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["-m", "--continue", *SMALL, f"strategy=fedavg,{NAME}:Mine", "num_rounds=1"]

    def outcomes() -> list[str]:
        assert main(sweep) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("      ")]
        return [line.partition(" s; ")[2] for line in lines]

    assert outcomes() == ["", ""]
    assert outcomes() == ["finished before"] * 2
    for name in (NAME, HELPER):
        edit(folder / f"{name}.py")
        assert outcomes() == ["finished before", f"run again, as its code has changed: {name}.py"]
        assert outcomes() == ["finished before"] * 2
    # A record of earlier releases has no hashes, and stays valid.
    (record,) = folder.rglob(CODE)
    record.unlink()
    assert outcomes() == ["finished before"] * 2


def test_an_interrupted_job_that_was_edited_begins_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["-m", "--continue", *GIVEN, "seed=0"]
    killed(monkeypatch, folder / "results", [*GIVEN, "seed=0"], 2)
    edit(folder / f"{HELPER}.py")
    # The folder's name has no `results_dir`.
    assert main([*sweep, f"results_dir={folder / 'results'}"]) == 0
    out = capsys.readouterr().out
    assert "3 rounds in" in out
    assert f"run again, as its code has changed: {HELPER}.py" in out
    assert "after round 2" not in "".join(path.read_text() for path in folder.rglob("run.log"))


def test_a_run_of_other_code_goes_on_only_where_that_is_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = killed(monkeypatch, folder / "killed", GIVEN, 2)
    copy = shutil.copytree(run, folder / "unchanged" / "seed-0")
    assert resumed(copy, "trust=true") == copy
    edit(folder / f"{HELPER}.py")
    refusal = rf"has changed since it began: {HELPER}.py\. .* add code_changed=accept"
    with pytest.raises(ConfigError, match=refusal):
        read_resume([f"resume={run}", "trust=true"], folder)
    with pytest.raises(ConfigError, match=refusal):
        read_run_config({"resume": str(run), "overrides": "trust=true"})
    with pytest.raises(ConfigError, match="code_changed=yes: must be accept"):
        read_resume([f"resume={run}", "trust=true", "code_changed=yes"], folder)
    assert read_run_config({"resume": str(run), "overrides": "trust=true code_changed=accept"})[1] == run
    resumed(run, "trust=true", "code_changed=accept")
    warning = f"the run's code has changed since it began: {HELPER}.py"
    assert json.loads((run / "summary.json").read_text())["warnings"] == [warning]
    # It is of two versions from then on, and so not of the one that it ended with either.
    with pytest.raises(ConfigError, match=refusal):
        read_resume([f"resume={run}", "trust=true", "num_rounds=4"], folder)


def test_models_of_an_edited_function_are_used_with_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(Path(__file__).with_name("own_functions.py"), folder / "net_of_a_test.py")
    given = [text for text in GIVEN if not text.startswith(("task.model_options", "num_rounds"))]
    run = straight(folder / "a", [*given, "task.model=net_of_a_test:net", "num_rounds=1"])
    edit(folder / f"{HELPER}.py")
    caplog.clear()
    load_run(run, trust=True)
    assert not caplog.messages
    edit(folder / "net_of_a_test.py")
    load_run(run, trust=True)
    assert caplog.messages == [
        f"warning: run={run}: its models are computed by code that has changed since the run: net_of_a_test.py"
    ]


def test_a_file_that_is_edited_after_its_import_is_recorded_as_it_was_imported(folder: Path) -> None:
    first = straight(folder / "a", GIVEN)
    (folder / f"{HELPER}.py").write_text("WHAT = 1  # not imported again by this process\n")
    second = straight(folder / "b", GIVEN)
    assert (first / CODE).read_text() == (second / CODE).read_text()
    with pytest.raises(ConfigError, match="has changed since it began"):
        read_resume([f"resume={second}", "trust=true"], folder)


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
        item = read_item(folder / "item.yaml", "item", "paper")
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
