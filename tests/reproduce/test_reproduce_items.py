"""Items of `florets reproduce`, and the words of its command line."""

import re
from pathlib import Path

import pytest

from florets.commands.main import help_on, main
from florets.conf.problems import ConfigError
from florets.papers.cells import places
from florets.papers.item import Item, find_item, item_names
from florets.papers.measures import read_measure
from florets.papers.request import read_request
from tests.reproduce_item import ITEM

BRIEFLY = ("discovery/recovery", "clove/table_5", "mixed_regression/figure_1")
"""Items that the default suite reads; the slow tests read all."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in BRIEFLY else pytest.mark.slow) for name in item_names()]
)
def test_every_items_runs_are_accepted_and_its_published_values_have_a_place_in_the_table(name: str) -> None:
    item = find_item(name)
    # Where a paper's item takes seconds, there is no small one.
    small = item if item.small is None else find_item(name, "small")
    assert item.title
    assert small.cut or item.small is None
    assert small.seeds <= item.seeds
    found = list(places(item, {}, Path("/")))
    assert not [place.problem for place in (*found, *places(small, {}, Path("/"))) if place.config is None]
    shown = {
        (place.row.name, place.column.name, measure)
        for place in found
        for measure in item.measures
        if place.config is not None and read_measure(measure)[0].fits(place.config)
    }
    assert {(entry.row, entry.column, entry.measure) for entry in item.references} <= shown


def test_an_item_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "discovery/recover"]) == 2
    error = capsys.readouterr().err
    assert "discovery/recover: there is no such item. Did you mean discovery/recovery?" in error
    assert main(["reproduce"]) == 2
    assert "takes one item, and there is none. There are: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["columns=clove,ifca"], "columns: ifca: there is no such column of item.yaml at scale=paper"),
        (["column=clove"], "column: there is no such key. Did you mean columns?"),
        (["scale=small", "rows=two"], "rows: two: there is no such row of item.yaml at scale=small"),
        (["strategy=fedprox"], "strategy=fedprox: columns have their own; columns=<name>,... chooses some"),
        (["other.yaml"], "takes one item, and item.yaml, other.yaml are 2"),
    ],
)
def test_a_wrong_word_is_named(
    item: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["reproduce", "item.yaml", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (item.parent / "results").exists()


def test_a_quiet_command_makes_the_same_table(item: Path) -> None:
    assert read_request([str(item), "quiet=true"]).folder(Path()) == read_request([str(item)]).folder(Path())
    assert help_on("reproduce").startswith("florets reproduce <item> [--table]")
    assert help_on("node").startswith("florets node start")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: 3", "seeds: none", "seeds: none: must be an integer from 1"),
        ("title: Two methods on turned digits\n", "", "title is missing; docs/reproduce.md has an example"),
        ("  two: {label", "  four: {label", "cannot be read (duplicate key four"),
        ("accuracy - fedavg", "accuracy - local", "local: there is no such column"),
        ("[strategy=clove]", "[strategy]", "columns.clove.overrides: strategy: is not of the form key=value"),
        (
            "measure: rounds_to_ari_90, values: {four: {clove: 8",
            "measure: accuracy, values: {four: {clove: 8",
            "paper: four clove accuracy: has a value there already",
        ),
        (ITEM, "[" * 500, "cannot be read"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(item: Path, old: str, new: str, message: str) -> None:
    assert old in ITEM
    item.write_text(ITEM.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        find_item(str(item))


BASE = """
title: Three methods
about: Of the first
seeds: 3
rows: {one: {overrides: [k=4]}, two: {overrides: [k=2]}}
columns:
  clove: {overrides: [strategy=clove]}
  ifca: {overrides: [strategy=ifca]}
  local: {overrides: [strategy=local]}
measures: [accuracy, accuracy - clove]
paper:
  - {source: Table 1, measure: accuracy, values: {one: {clove: 97.6 ± 0.1, ifca: 80, local: 70}}}
why: {ifca: other seeds, local: another rate, two: a half}
small: {cut: one seed, seeds: 1}
"""
EXTENDING = """
title: Two of them
extends: base.yaml
columns: [local, ifca]
measures: [accuracy]
paper:
  - source: Table 2
    measure: accuracy
    values: {one: {ifca: 81.25, local: 71}, two: {ifca: 82, local: 72}}
    why: {two.ifca: half the groups}
why: {local: [no reason, at all]}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "item.yaml").write_text(EXTENDING)
    return tmp_path


def item(folder: Path, scale: str = "paper") -> Item:
    return find_item(str(folder / "item.yaml"), scale)


def test_an_item_takes_what_it_lacks_from_another(base: Path) -> None:
    found = item(base)
    assert (found.title, found.about, found.seeds) == ("Two of them", "Of the first", 3)
    assert list(found.rows) == ["one", "two"]
    assert list(found.columns) == ["local", "ifca"]
    assert found.measures == ("accuracy",)
    assert item(base, "small").seeds == 1


def test_reasons_are_added_to_those_of_the_other_and_the_nearest_wins(base: Path) -> None:
    reasons = {(entry.row, entry.column): entry.reasons for entry in item(base).references}
    assert reasons == {
        ("one", "ifca"): ("other seeds",),
        ("one", "local"): ("no reason", "at all"),
        ("two", "ifca"): ("half the groups",),
        # Of a column and of a row both hold.
        ("two", "local"): ("no reason", "at all", "a half"),
    }
