"""Presets of one's own from a folder, and sweeps that go on."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.presets import OWN_DIR, choices
from florets.conf.schema import Config
from florets.reports.summary import RunSummary
from tests import fake_cells

PRESET = """# florets experiment=mine
# Digits with a network of mine.
defaults:
  - /experiment/quickstart
  - override /task: small

num_rounds: 3
"""
TASK = "# A small network.\ndata: digits\nmodel: mlp\nloss: cross_entropy\nmodel_options: {hidden: [5]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a preset and a task file, below the working directory."""
    for group, name, text in (("experiment", "mine", PRESET), ("task", "small", TASK)):
        (tmp_path / "my presets" / group).mkdir(parents=True)
        (tmp_path / "my presets" / group / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(OWN_DIR, raising=False)
    return tmp_path / "my presets"


@pytest.mark.parametrize("option", [["--config-dir", "my presets"], ["--config-dir=my presets"]])
def test_a_preset_of_ones_own_composes_with_a_task_of_ones_own(
    folder: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--cfg", *option, "experiment=mine", "k=3"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["experiment"], shown["num_rounds"], shown["k"]) == ("mine", 3, 3)
    assert shown["task"]["model_options"] == {"hidden": [5]}
    # Nothing of it is left for the next command of this process.
    assert OWN_DIR not in os.environ
    assert "mine" not in choices("experiment")


def test_a_task_of_ones_own_is_laid_over_a_preset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_DIR, str(folder))
    assert compose(["experiment=digits_label_skew", "task=small"]).task.model_options == {"hidden": [5]}
    assert {"mine", "quickstart"} <= set(choices("experiment"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config-dir", "nowhere"], "--config-dir nowhere: is no folder; presets are the files experiment/<name>"),
        (["--config-dir", "."], "--config-dir .: has no preset"),
        (["--cfg", "--config-dir"], "--config-dir: name the folder"),
        (["--continue", "seed=1"], "--continue: goes on with a sweep and needs -m"),
    ],
)
def test_what_is_wrong_with_the_folder_is_named(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_preset_with_the_name_of_one_of_florets_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "experiment" / "quickstart.yaml").write_text(PRESET)
    assert main(["--cfg", "--config-dir", str(folder), "experiment=mine"]) == 2
    assert "quickstart.yaml: florets has one of this name" in capsys.readouterr().err


# Sweeps


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a sweep's jobs come to an end without work; return the seeds that were run."""
    begun: list[int] = []
    interrupted: list[int] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        begun.append(config.seed)
        if config.seed == 2 and not interrupted:
            interrupted.append(config.seed)
            raise KeyboardInterrupt
        return fake_cells.run(config, overrides)

    monkeypatch.setattr("florets.engines.engine.run", run)
    return begun


@pytest.mark.slow
def test_a_sweep_goes_on_and_runs_no_finished_job_again(
    folder: Path, ran: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["-m", "--config-dir", "my presets", "experiment=mine", "seed=0,1,2,3"]
    assert main(given) == 130
    assert main([*given, "--continue"]) == 0
    assert ran == [0, 1, 2, 2, 3]
    out = capsys.readouterr().out
    assert out.count("finished before") == 2
    # Jobs of other data are others.
    ran.clear()
    assert main([*given, "--continue", "data_dir=elsewhere"]) == 0
    assert ran == [0, 1, 2, 3]
    # Without the option all begin anew.
    assert main(given) == 0
    assert len(ran) == 8


@pytest.mark.slow
def test_a_killed_sweep_of_own_presets_goes_on(folder: Path) -> None:
    line = [sys.executable, "-m", "florets", "-m", "--config-dir", "my presets", "experiment=mine"]
    line += ["seed=range(0,4)", "num_clients=4", "num_rounds=2", "-q"]
    done = folder.parent / "results" / "mine"
    process = subprocess.Popen(line, cwd=folder.parent, stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + 300
    while len(list(done.rglob("summary.json"))) < 2 and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in done.rglob("report.html")}
    assert before
    said = subprocess.run([*line, "--continue"], cwd=folder.parent, check=True, capture_output=True, text=True).stdout
    assert said.count("finished before") >= len(before)
    assert len(list(done.rglob("summary.json"))) == 4
    assert {path: path.stat().st_mtime_ns for path in before} == before
