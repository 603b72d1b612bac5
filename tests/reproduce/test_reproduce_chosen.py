"""Settings that an item chooses by validation data, and the leaderboard."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.schema import Config
from florets.engines import engine
from florets.papers.cells import places
from florets.papers.item import find_item
from florets.reports.summary import RunSummary
from tests import fake_cells

ITEM = """
title: A chosen step size
seeds: 2
overrides: [num_rounds=2, checkpoint_every=0]
rows:
  four: {label: 4 rotations, overrides: [k=4, measure=accuracy]}
  two: {label: 2 rotations, overrides: [k=2, task.num_clusters=2]}
columns:
  clove: {label: CLoVE, overrides: [strategy=clove], choose: {train.learning_rate: [0.1, 0.2]}}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg]}
measures: [accuracy]
"""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float, float]]:
    """Strategy, seed, step size and share of validation data of each run; runs do no work.

    The fake validation figure is the step size: as an accuracy the larger is better, as a loss the smaller.
    """
    (tmp_path / "item.yaml").write_text(ITEM)
    monkeypatch.chdir(tmp_path)
    begun: list[tuple[str, int, float, float]] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        step = config.train.learning_rate
        begun.append((config.strategy.name, config.seed, step, config.task.validation_fraction))
        return fake_cells.run(config, overrides)

    monkeypatch.setattr(engine, "run", run)
    return begun


def test_settings_are_chosen_in_each_row_by_validation_data_and_once(
    trained: list[tuple[str, int, float, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml"]) == 0
    assert trained[:4] == [("clove", 0, step, 0.2) for step in (0.1, 0.2, 0.1, 0.2)]
    assert [run for run in trained[4:] if run[0] == "clove"] == [
        ("clove", s, r, 0.0) for s in (0, 1) for r in (0.2, 0.1)
    ]
    assert len(trained) == 4 + 8
    text = capsys.readouterr().out
    assert "| CLoVE | `train.learning_rate=0.1,0.2` | 0.2         | 0.1         |" in text
    assert main(["reproduce", "item.yaml"]) == 0
    assert len(trained) == 12
    # A key given by hand is not chosen.
    assert main(["reproduce", "item.yaml", "train.learning_rate=0.3"]) == 0
    assert {run[2:] for run in trained[12:]} == {(0.3, 0.0)}


def test_a_page_chooses_by_its_stored_cells(trained: list[tuple[str, int, float, float]], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    text = page.read_text()
    assert "8 finished" in text
    shutil.rmtree(tmp_path / "results")
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert page.read_text() == text


def test_every_method_of_the_leaderboard_composes_or_is_left_out(tmp_path: Path) -> None:
    item = find_item("leaderboard")
    assert len(item.rows) == 15
    some = [
        *places(item.narrowed(["schools"], None), {}, tmp_path),
        *places(item.narrowed(None, ["local"]), {}, tmp_path),
    ]
    problems = [one.problem for place in some for one in (place, *place.candidates)]
    assert problems == [""] * len(problems)
