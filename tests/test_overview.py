"""The overview of a page of tables: every item, how far it is, and how it compares with the paper."""

import re
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.server_app.reproduce.overview import _natural, overview_block
from florets.server_app.reproduce.reasons import UNDECIDED
from tests import fake_cells

ITEM = """
title: Two methods on turned digits
seeds: 3
overrides: [num_rounds=2, checkpoint_every=0]
rows:
  four: {label: 4 rotations, overrides: [k=4, task.num_clusters=4]}
  two: {label: 2 rotations, overrides: [k=2, task.num_clusters=2], leave_out: [fedavg], seeds: 1}
columns:
  clove: {label: CLoVE, overrides: [strategy=clove]}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg]}
measures: [ari, accuracy]
paper:
  - source: Table 3
    measure: accuracy
    values: {four: {clove: 92.5 ± 0.4, fedavg: 70}}
    why: {clove: [another rate, other seeds], fedavg: not told}
"""
PAGE = """# Results

```bash
# no heading
```

<!-- overview ours -->
<!-- end of overview -->

## Groups: turned, 4 or 2

<!-- reproduce ours/table_2 columns=clove measures=ari -->
<!-- end of reproduce -->

### More of it

<!-- reproduce ours/table_2 measures=accuracy layout=methods -->
<!-- end of reproduce -->

<!-- reproduce ours/table_2 eval_every=2 -->
<!-- end of reproduce -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of items of the test's own, of which runs do no work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "run", fake_cells.run)
    monkeypatch.setattr("florets.server_app.reproduce.item_file.FOLDER", tmp_path / "items")
    for name in ("ours/table_2", "ours/table_10", "other/figure_1"):
        path = tmp_path / "items" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ITEM)
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


def lines(page: Path) -> list[list[str]]:
    (block,) = re.findall(r"<!-- overview.*?-->(.*?)<!-- end", page.read_text(), re.DOTALL)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()[2:]]


def test_every_item_has_a_line_with_its_state_and_its_verdicts(page: Path) -> None:
    assert main(["reproduce", "ours/table_2", "rows=four", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    link = "[ours/table_2](#groups-turned-4-or-2)"
    assert lines(page) == [
        # The whole item, whatever its blocks show of it: 3 seeds of two methods, and 1.
        [link, "", "4 of 7", "1 within 1 point (1 unfinished), 1 off (1 unfinished, 1 may be chance)"],
        ["[ours/table_2](#more-of-it)", "`eval_every=2`", "0 of 7", "2 not run"],
        ["ours/table_10", "", "0 of 7", ""],
    ]
    before = page.read_text()
    told = re.search(
        r"In brackets what is published, with `off` where ours is not near it\. (.*?)\n\n<!--", before, re.DOTALL
    )
    assert told is not None
    verdicts = "1 within 1 point (1 unfinished), 1 off (1 unfinished, 1 may be chance)"
    assert told[1].split("\n\n") == [
        f"2 comparisons with published values: {verdicts}.",
        "Possible reasons:",
        f"- off a: {UNDECIDED}\n- off b: another rate\n- off c: other seeds",
    ]
    assert "| 90.5 ± 0.7 [2/3] (92.5 ± 0.4; off a b c) |" in before
    # Where the runs are not, it is made of what is stored.
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    assert page.read_text() == before


def test_an_overview_without_words_has_all_items(page: Path) -> None:
    page.write_text(PAGE.replace("<!-- overview ours -->", "<!-- overview -->"))
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert lines(page)[0][0] == "other/figure_1"


def test_a_paper_that_is_not_there_is_named(page: Path) -> None:
    with pytest.raises(ConfigError, match=r"outs: no item's name begins so\. Did you mean ours\?"):
        overview_block(["outs"], PAGE, lambda words: pytest.fail("no table is asked for"))


def test_a_block_with_wrong_words_is_named_with_its_own_line(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, rule in (
        ("eval_evry=1", "eval_evry=1: there is no such key"),
        ("measures=arii", "measures=arii: ours"),
    ):
        page.write_text(PAGE.replace("eval_every=2", words))
        assert main(["reproduce", "--results-page", "page.md"]) == 2
        assert f"line 20, <!-- reproduce ours/table_2 {words} -->: {rule}" in capsys.readouterr().err


def test_a_bar_in_a_label_ends_no_cell(page: Path) -> None:
    item = page.parent / "items" / "ours" / "table_2.yaml"
    item.write_text(ITEM.replace("{label: CLoVE", '{label: "a|b"'))
    assert main(["reproduce", "ours/table_2", "seeds=1"]) == 0
    (table,) = page.parent.rglob("table.md")
    assert r"| a\|b" in table.read_text()


def test_a_damaged_run_is_named_where_curves_are_drawn_of_it(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = page.parent / "items" / "ours" / "table_2.yaml"
    item.write_text(ITEM + "plot: {kind: curves, measure: ari}\n")
    assert main(["reproduce", "ours/table_2", "seeds=1"]) == 0
    rounds = next(page.parent.rglob("rounds.jsonl"))
    rounds.write_text(rounds.read_text()[:-9])
    assert main(["reproduce", "ours/table_2", "--table"]) == 2
    assert f"{rounds}: cannot be read" in capsys.readouterr().err


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["a/figure_10", "a/table_1_cifar10", "a/figure_2", "a/table_1", "b/x"]
    assert sorted(names, key=_natural) == ["a/figure_2", "a/figure_10", "a/table_1", "a/table_1_cifar10", "b/x"]


def test_a_run_that_two_items_share_is_taken_from_either_ones_stored_cells(page: Path) -> None:
    assert main(["reproduce", "ours/table_2", "rows=four", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    # Another item asks for the same runs under other names, where the runs are not.
    other = page.parent / "items" / "ours" / "table_10.yaml"
    other.write_text(ITEM.replace("four", "quarter").replace("fedavg:", "average:").replace("[fedavg]", "[average]"))
    page.write_text(PAGE.replace("ours/table_2 eval_every=2", "ours/table_10 measures=accuracy"))
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    assert [
        "[ours/table_10](#more-of-it)",
        "",
        "4 of 7",
        "1 within 1 point (1 unfinished), 1 off (1 unfinished, 1 may be chance)",
    ] in lines(page)
    stored = (page.with_suffix("") / "ours_table_10_paper.csv").read_text()
    assert stored.count("quarter,average,") == 2
    # Of other settings they are nobody else's.
    other.write_text(ITEM.replace("num_rounds=2", "num_rounds=3"))
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    assert ["[ours/table_10](#more-of-it)", "", "0 of 7", "2 not run"] in lines(page)
