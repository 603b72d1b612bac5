"""Strategies and presets of one's own: an example package by path or entry point, and a folder of presets."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.presets import OWN_DIR
from florets.reports.summary import RunSummary
from tests.test_resume import killed, results, resumed, straight

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_strategy"
PATH = "mean_groups:MeanGroups"
SHORT = ["num_clients=8", "task.model_options.hidden=[8]", "quiet=true", "num_rounds=4"]
SMALL = [*SHORT, "k=2", "task.num_clusters=2", "strategy.fraction_train=0.7"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "mean_groups"]:
        del sys.modules[name]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let Python find what an installation of the example leaves beside its modules."""
    info = tmp_path / "site" / "mean_groups-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mean-groups\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[florets.strategies]\nmean_groups = {PATH}\n")
    monkeypatch.syspath_prepend(info.parent)


def config_of(folder: Path) -> dict[str, object]:
    return dict(yaml.safe_load((folder / "config.yaml").read_text())["strategy"])


def ari_of(folder: Path) -> float | None:
    return RunSummary.from_json((folder / "summary.json").read_text()).final_ari


@pytest.mark.parametrize("compare", ["inputs", "labels"])
@pytest.mark.slow
def test_it_finds_the_groups_that_its_means_tell_apart(tmp_path: Path, compare: str) -> None:
    groups = {"inputs": "experiment=quickstart", "labels": "experiment=digits_label_skew"}
    folder = straight(tmp_path, [*SHORT, groups[compare], f"strategy={PATH}", f"strategy.compare={compare}"])
    assert ari_of(folder) == 1.0
    assert config_of(folder)["compare"] == compare


def test_a_killed_run_goes_on_equal_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    given = [*SMALL, "strategy=mean_groups"]
    whole = results(straight(tmp_path / "whole", given))
    folder = killed(monkeypatch, tmp_path / "killed", given, 2)
    assert results(resumed(folder)) == whole


def test_help_lists_what_is_installed_and_shows_the_keys_of_a_path(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    def help_of(*arguments: str) -> str:
        assert main([*arguments, "--help"]) == 0
        return " ".join(capsys.readouterr().out.split())

    line = "Clients send the mean of their inputs or labels"
    shown = help_of(f"strategy={PATH}")
    assert f"{PATH}: {line}" in shown
    # A single strategy's help has the keys of no other.
    assert ("frequencies [inputs | labels]" in shown, "strategy.square_root" in shown) == (True, False)
    request.getfixturevalue("installed")
    assert f"mean_groups {line}" in help_of()


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
    monkeypatch.setenv(OWN_DIR, "my presets")
    return tmp_path / "my presets"


def test_a_preset_of_ones_own_composes_with_a_task_of_ones_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--cfg", "experiment=mine", "k=3"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["experiment"], shown["num_rounds"], shown["k"]) == ("mine", 3, 3)
    assert shown["task"]["model_options"] == {"hidden": [5]}


def test_a_preset_with_a_name_of_ours_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "experiment" / "quickstart.yaml").write_text(PRESET)
    assert main(["--cfg", "experiment=mine"]) == 2
    assert "quickstart.yaml: florets has one of this name" in capsys.readouterr().err
