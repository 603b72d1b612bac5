"""Presets of one's own from a folder, and sweeps that go on."""

import os
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.presets import OWN_DIR, choices

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
