"""`florets.reproduce`: what is finished of an item as a frame, tables and a figure."""

from pathlib import Path

import pytest

import florets
from florets.conf.problems import ConfigError


def test_an_item_is_run_and_read_as_data(item: Path, ran: list[tuple[str, int, int]]) -> None:
    before = florets.reproduce("item.yaml", run=False)
    assert set(before.frame.state) == {"not run"}
    with pytest.raises(ConfigError, match="nothing to draw: no run of it is finished"):
        before.plot("accuracy")
    found = florets.reproduce("item.yaml")
    assert len(ran) == 7
    frame = found.frame
    clove = frame[(frame.row == "4 rotations") & (frame.column == "CLoVE & co")]
    assert clove.accuracy.tolist() == pytest.approx([90.0, 91.0, 92.0])
    # A loss says nothing in a task of classes; the seed with a wrong grouping never came to 0.9.
    assert clove.loss.isna().all()
    assert clove.rounds_to_ari_90.isna().tolist() == [False, True, False]
    assert found.table("accuracy").texts == [
        ["", "CLoVE & co", "FedAvg"],
        ["4 rotations", "91.0 ± 1.0", "70.0 ± 0.0"],
        ["2 rotations", "90.0", "--"],
    ]
    assert [[cell.is_best for cell in row] for row in found.table("accuracy").cells] == [
        [True, False],
        [False, False],
    ]
    assert found.table("accuracy", rows=["four"], turned=True).texts == [
        ["", "4 rotations"],
        ["CLoVE & co", "91.0 ± 1.0"],
        ["FedAvg", "70.0 ± 0.0"],
    ]
    assert r"4 rotations & \textbf{91.0} $\pm$ 1.0 & 70.0 $\pm$ 0.0 \\" in found.latex("accuracy", caption="Digits")
    # t = 21 * sqrt(3) with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2).
    assert found.table("accuracy - fedavg").cells[0][0].text == "+21.0 [+18.5, +23.5], p < 0.001"
    assert [path.suffix for path in found.plot("accuracy").save(item.parent / "lines")] == [".png", ".pdf", ".svg"]


def test_what_an_item_does_not_have_is_refused(item: Path) -> None:
    found = florets.reproduce("item.yaml", run=False, scale="small")
    with pytest.raises(ConfigError, match=r"rows=two: item has no such row\. It has: four\."):
        found.table(rows=["two"])
    with pytest.raises(ConfigError, match=r"measure=acuracy: there is no such measure\. Did you mean accuracy\?"):
        found.table("acuracy")
    with pytest.raises(ConfigError, match=r"measure=accuracy - ifca: there is no column ifca"):
        found.table("accuracy - ifca")
