"""Plots of `florets reproduce`: over rows and over rounds, and on a page whose runs are on several machines."""

from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.engines import engine
from florets.papers import command
from florets.papers.plot import row_lines
from florets.papers.table import Table
from tests import fake_cells

ITEM = """
title: Two methods on turned digits
seeds: 2
overrides: [num_rounds=2, checkpoint_every=0]
rows:
  four: {label: 4 rotations, overrides: [k=4, task.num_clusters=4]}
  two: {label: 2 rotations, overrides: [k=2, task.num_clusters=2], leave_out: [fedavg]}
columns:
  clove: {label: CLoVE, overrides: [strategy=clove]}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg]}
measures: [ari, accuracy]
plot: curves
"""
BLOCK = "<!-- reproduce item.yaml plot=yes -->\n<!-- end of reproduce -->\n"

pytestmark = pytest.mark.pictures


@pytest.fixture
def item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "run", fake_cells.run)
    monkeypatch.setattr(engine, "resume", fake_cells.resume)
    (tmp_path / "item.yaml").write_text(ITEM)
    (tmp_path / "page.md").write_text(BLOCK)
    return tmp_path / "item.yaml"


def pictures(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.png"))


def test_a_line_over_rows_is_the_mean_and_its_spread_and_ends_where_it_is_known(
    item: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Table] = []
    real = command.write_table
    monkeypatch.setattr(command, "write_table", lambda table, *rest: (seen.append(table), real(table, *rest))[1])
    item.write_text(ITEM.replace("plot: curves", "plot: rows"))
    assert main(["reproduce", "item.yaml"]) == 0
    table = seen[-1]
    lines = row_lines(table.matrix("accuracy"), table)
    line = lines["clove"]
    # Seeds 0 and 1 have 90 and 91 %.
    assert (line.x.tolist(), line.y.tolist()) == ([0, 1], [90.5, 90.5])
    np.testing.assert_allclose(line.spread, 0.5**0.5)
    mean = lines["fedavg"].y
    assert (mean[0], np.isnan(mean[1])) == (70.0, True)
    # One model for all has no ARI to draw.
    assert list(row_lines(table.matrix("ari"), table)) == ["clove"]
    (plot,) = (item.parent / "results" / "reproduce").glob("item/**/plot.png")
    assert plot.read_bytes()[:4] == b"\x89PNG"


def run(seeds: int, results_dir: str, *more: str) -> None:
    assert (
        main(["reproduce", "item.yaml", "columns=clove", f"seeds={seeds}", f"results_dir={results_dir}", *more]) == 0
    )


def remade(results_dir: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["reproduce", "--results-page", "page.md", f"results_dir={results_dir}"]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_page_draws_curves_where_the_runs_are(item: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = item.parent / "page"
    run(2, "one")
    remade("one", capsys)
    assert pictures(folder) == ["item_paper-four.png", "item_paper-two.png"]
    # Each says which row it is of.
    title, label = "Two methods on turned digits", "2 rotations"
    assert f"\n\n![{title}: {label}](page/item_paper-two.png)\n" in (item.parent / "page.md").read_text()
    # Where no run is, all stays.
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    page = (item.parent / "page.md").read_text()
    assert "the plot is the previous one: the folders of 4 runs are not here" in remade("none", capsys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (item.parent / "page.md").read_text() == page
