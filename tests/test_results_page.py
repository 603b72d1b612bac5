"""Pages of results: their tables are what the tool makes of the stored runs, and none is typed by hand."""

import csv
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from florets.conf.compose import compose
from florets.papers.cells import Place, Progress
from florets.papers.item import Line
from florets.papers.page import remake
from florets.papers.store import Store
from tests.pages import ROOT

# Pages that no stored runs make: the authors' code on one side, figures of `benchmarks`, and verdicts in words.
TYPED = {ROOT / "papers" / f"{name}.md" for name in ("agreement", "benchmarks", "verdicts")}
PAPERS = sorted(set((ROOT / "papers").glob("*.md")) - TYPED)
PAGE = ROOT / "papers" / "comparisons.md"
PLACE = Place(Line({}, "four", "4"), Line({}, "clove", "CLoVE"), (), 2, compose(["strategy=clove", "data_dir=/here"]))
DONE = Progress("finished", {"accuracy": 1 / 3, "groups": 4, "loss": None})


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_no_table_of_a_page_is_typed(page: Path) -> None:
    blocks = re.compile(r"<!-- reproduce\b.*?<!-- end of reproduce -->", re.DOTALL)
    by_hand = blocks.sub("", page.read_text(encoding="utf-8"))
    assert not [line for line in by_hand.splitlines() if line.lstrip().startswith("|")]
    # Nor a mean with its spread in the text.
    assert not re.findall(r"\d ± \d", by_hand)


@pytest.mark.parametrize(
    "page",
    [page if page.stem in ("comparisons", "zoo") else pytest.param(page, marks=pytest.mark.slow) for page in PAPERS],
    ids=lambda page: page.stem,
)
def test_a_whole_page_is_what_is_stored(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / page.stem
    shutil.copy(page, tmp_path)
    shutil.copytree(page.with_suffix(""), folder)
    assert remake([page.name, "results_dir=none"], tmp_path) == 0
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    stored = {path.name: path.read_bytes() for path in page.with_suffix("").iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == stored


def test_cells_are_stored_and_replaced_by_nothing_less(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells.csv", "one")
    store.put(PLACE, 0, DONE)
    store.put(PLACE, 1, Progress("stopped", note="after round 7"))
    store.write([PLACE])
    again = Store(tmp_path / "cells.csv", "one")
    for found in (Progress("not run"), Progress("failed", note="no memory")):
        again.put(PLACE, 0, found)
    assert again.get(PLACE, 0).values == {"accuracy": 0.333333, "groups": 4}
    assert again.get(PLACE, 1) == Progress("stopped", note="after round 7")
    again.write([PLACE])
    assert again.path.read_text() == store.path.read_text()
    assert "here" not in store.path.read_text()


def test_cells_of_other_settings_do_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells.csv", "one")
    store.put(PLACE, 0, DONE)
    elsewhere = replace(PLACE, config=compose(["strategy=clove", "data_dir=/there", "experiment=own_data"]))
    assert store.get(elsewhere, 0).state == "finished"
    # Be it typed or in a preset that has changed.
    changed = replace(PLACE, config=compose(["strategy=clove", "data_dir=/here", "k=3"]))
    assert store.get(changed, 0) == Progress("not run")
    # It is kept, unseen, until a run takes its place.
    store.write([changed])
    again = Store(store.path, "one")
    assert again.get(changed, 0) == Progress("not run")
    assert again.get(PLACE, 0).values["accuracy"] == 0.333333
    again.put(changed, 0, Progress("stopped", note="after round 2"))
    again.write([changed])
    assert Store(store.path, "one").get(PLACE, 0) == Progress("not run")


def test_the_figures_of_each_algorithm_are_those_of_the_stored_runs() -> None:
    with (PAGE.with_suffix("") / "cells.csv").open(encoding="utf-8", newline="") as file:
        runs = [run for run in csv.DictReader(file) if run["row"] == "rotation"]
    found = re.findall(
        r"\[`(\w+)`\]\([^)]*\.md[^)]*\).*\| ([\d.]+) ± ([\d.]+); ([\d.]+)(?: ± ([\d.]+))? \|",
        (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8"),
    )
    assert len(found) >= 27
    for strategy, mean, spread, ari, ari_spread in found:
        own = [run for run in runs if run["column"] == strategy]
        accuracy, aris = ([float(run[name] or 0) for run in own] for name in ("accuracy", "ari"))
        assert f"{100 * statistics.mean(accuracy):.1f} {100 * statistics.stdev(accuracy):.1f}" == f"{mean} {spread}"
        assert (float(ari), float(ari_spread or 0)) == (
            pytest.approx(statistics.mean(aris), abs=0.006),
            pytest.approx(statistics.stdev(aris), abs=0.006),
        ), strategy
