"""The table of `florets reproduce`: what it says of places that are finished, and of those that are not."""

import re
from pathlib import Path

import pytest

import florets
from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.papers.references import UNDECIDED
from tests.reproduce_item import ITEM, breaks, interrupt, results


def test_the_table_marks_what_is_not_finished(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    with monkeypatch.context() as patch:
        breaks(patch, 1, interrupt)
        assert main(["reproduce", "item.yaml"]) == 130
    text = (results(item) / "table.md").read_text()
    sections = dict(re.findall(r"\n([^\n]*):\n\n(\|.*?)\n(?=\n)", text, re.DOTALL))
    lines = {name: [re.sub(" +", " ", row) for row in body.splitlines()[2:]] for name, body in sections.items()}
    # Seeds 0, 1 and 2 of CLoVE: 4, 3 and 4 groups; accuracy 90, 91 and 92 %. FedAvg's first seed was stopped.
    assert lines["Right number of groups at the end"] == ["| 4 rotations | 2 of 3 |", "| 2 rotations | 1 of 1 |"]
    assert lines["Accuracy in %"] == [
        "| CLoVE & co | 91.0 ± 1.0 (92.5 ± 0.4; off a) | 90.0 |",
        "| FedAvg | stopped after round 1 (71.5 ± 0.25) | -- |",
    ]
    assert lines["First round with an ARI of 0.9"] == [
        "| 4 rotations | 3.0 ± 1.4 (2 of 3) (8; off a) |",
        "| 2 rotations | 2.0 |",
    ]
    assert "3 published values: 2 off (2 may be chance), 1 not finished." in text
    assert f"Possible reasons:\n\n- off a: {UNDECIDED}\n" in text
    assert lines["Accuracy in %, less that of FedAvg (equal seeds)"] == ["| CLoVE & co | stopped after round 1 |"]
    # A loss stands where there is no accuracy.
    assert "Test loss" not in sections
    assert "7 cells: 4 finished, 1 stopped, 2 not run." in text


def test_the_table_is_remade_without_a_run_and_the_list_says_how_far_items_are(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["reproduce", "item.yaml", "seeds=1"]) == 0
    before = (results(item) / "table.md").read_text()
    (results(item) / "table.md").unlink()
    begun = len(ran)
    assert main(["reproduce", "item.yaml", "--table"]) == 0
    assert (results(item) / "table.md").read_text() == before
    assert "91.0" not in before
    assert "90.0 [1/3]" in before
    assert len(ran) == begun == 3
    (item.parent / "items").mkdir()
    (item.parent / "items" / "item.yaml").write_text(f"# florets reproduce item\n{item.read_text()}")
    monkeypatch.setattr("florets.papers.item.FOLDER", item.parent / "items")
    capsys.readouterr()
    assert main(["reproduce", "--list"]) == 0
    told = capsys.readouterr().out
    assert "item  Two methods on turned digits" in told
    assert "7 cells: 3 finished, 4 not run; 3 published values: 3 off" in told
    assert len(ran) == 3


def test_a_place_whose_settings_are_refused_is_marked_and_fails_the_command(
    item: Path, ran: list[tuple[str, int, int]]
) -> None:
    item.write_text(ITEM.replace("overrides: [strategy=clove]", "overrides: [strategy=clovee]"))
    assert main(["reproduce", "item.yaml"]) == 1
    table = " ".join((results(item) / "table.md").read_text().split())
    assert "7 cells: 3 finished, 4 refused." in table
    assert "| CLoVE & co | refused (92.5 ± 0.4) | refused |" in table
    assert "| FedAvg | 70.0 ± 0.0 (71.5 ± 0.25; off) | -- |" in table


@pytest.mark.pictures
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
    assert found.table("accuracy").turned.texts[0] == ["", "4 rotations", "2 rotations"]
    assert r"4 rotations & \textbf{91.0 $\pm$ 1.0} & 70.0 $\pm$ 0.0 \\" in found.table("accuracy").latex("Digits")
    # t = 21 * sqrt(3) with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2).
    assert found.table("accuracy - fedavg").cells[0][0].text == "+21.0 [+18.5, +23.5], p < 0.001"
    assert (results(item) / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [path.suffix for path in found.plot("accuracy").save(item.parent / "lines")] == [".png", ".pdf", ".svg"]
