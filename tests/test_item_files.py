"""Files of items: what one takes from another, and what its reader says of faults."""

import re
from pathlib import Path

import pytest

from florets.conf.problems import ConfigError
from florets.papers.item_file import read_item
from florets.papers.items import Item

BASE = """
title: Three methods
about: Of the first
seeds: 3
rows: {one: {overrides: [k=4]}, two: {overrides: [k=2]}}
columns:
  clove: {overrides: [strategy=clove]}
  ifca: {overrides: [strategy=ifca], after: 1}
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
    return read_item(folder / "item.yaml", "item", scale)


def test_an_item_takes_what_it_lacks_from_another(base: Path) -> None:
    found = item(base)
    assert (found.title, found.about, found.seeds) == ("Two of them", "Of the first", 3)
    assert [row.name for row in found.rows] == ["one", "two"]
    assert [(column.name, column.after) for column in found.columns] == [("local", 0), ("ifca", 1)]
    assert found.measures == ("accuracy",)
    assert item(base, "small").seeds == 1


def test_reasons_are_added_to_those_of_the_other_and_the_nearest_wins(base: Path) -> None:
    reasons = {
        (entry.row, entry.column): tuple(reason.text for reason in entry.reasons) for entry in item(base).references
    }
    assert reasons == {
        ("one", "ifca"): ("other seeds",),
        ("one", "local"): ("no reason", "at all"),
        ("two", "ifca"): ("half the groups",),
        # Of a column and of a row both hold.
        ("two", "local"): ("no reason", "at all", "a half"),
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("columns: [local, ifca]", "columns: [locale, ifca]", "has no such column. Did you mean local?"),
        ("columns: [local, ifca]", "rows: [three]", "rows: three: "),
        ("extends: ", "extends: no/such # ", "extends: no/such: there is no such item"),
        ("extends: ", "extends: no_such.yaml # ", "no_such.yaml: there is no such file"),
        ("extends: ", "extend: ", "extend: there is no such key. Did you mean extends?"),
        ("measures: [accuracy]", "measures: [accuracy - clove]", "measures: clove: there is no such column"),
    ],
)
def test_what_cannot_be_taken_is_named(base: Path, old: str, new: str, message: str) -> None:
    path = base / "item.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        item(base)


def test_items_that_lead_to_each_other_are_refused(base: Path) -> None:
    (base / "base.yaml").write_text("extends: item.yaml\n" + BASE)
    with pytest.raises(ConfigError, match="leads back to this file"):
        item(base)


def test_a_list_of_lines_needs_another_item(base: Path) -> None:
    (base / "item.yaml").write_text(re.sub("rows: .*", "rows: [one, two]", BASE))
    with pytest.raises(ConfigError, match=re.escape("rows: ['one', 'two']: must be a mapping")):
        item(base)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("small: {cut: one seed, seeds: 1}", "small: [one]", "small: ['one']: must be a mapping"),
        ("seeds: 1}", "for_rows: [one]}", "small.for_rows: ['one']: must be a mapping"),
        ("seeds: 1}", "rows: one}", "small.rows: one: must be a list of names"),
    ],
)
def test_what_is_wrong_with_the_small_scale_is_named(base: Path, old: str, new: str, message: str) -> None:
    (base / "item.yaml").write_text(BASE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        item(base, "small")
