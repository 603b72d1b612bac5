"""Hostile descriptions: a reply to `query.describe` is checked values, or refused as malformed."""

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, RecordDict

from florets.task.data.tables.declaration import Declaration, Site, read_site
from florets.task.data.tables.description import ColumnSummary, Description, TargetSummary
from florets.task.data.tables.read import read_table
from florets.task.wire import MalformedMessage, kinds
from florets.task.wire.description import read_description

DESCRIBED = Description(
    form="table",
    records=100,
    train_records=80,
    columns=(
        ColumnSummary("age", "numeric", "input", 78, 2, 40, mean=50.0, m2=7800.0, quantiles=(30.0, 50.0, 70.0)),
        ColumnSummary("sex", "text", "input", 80, 0, 3, categories={"f": 40, "m": 38}, other=2),
        ColumnSummary("id", "numeric", "id", 80, 0, 80),
    ),
    target=TargetSummary("ill", True, True, 80, 2, {"0": 50, "1": 30}, 0.375, 18.75, (0.0, 0.0, 1.0)),
    notes=("read with tabs",),
)
PLAIN: dict[str, Any] = json.loads(DESCRIBED.to_json())


def reply(text: object, key: object = "north") -> RecordDict:
    return RecordDict({kinds.CONFIG: ConfigRecord({kinds.CLIENT_KEY: key, kinds.DESCRIPTION: text})})  # type: ignore[dict-item]


def changed(**changes: object) -> dict[str, Any]:
    return {**PLAIN, **changes}


def column(place: int = 0, **changes: object) -> dict[str, Any]:
    columns = [dict(one) for one in PLAIN["columns"]]
    columns[place] |= changes
    return changed(columns=columns)


def target(**changes: object) -> dict[str, Any]:
    return changed(target={**PLAIN["target"], **changes})


@pytest.mark.parametrize(
    "values",
    [
        changed(form="text"),
        changed(target=None),
        changed(records=79),
        changed(train_records=0),
        changed(columns=[PLAIN["columns"][0]] * 2),
        changed(shape=[3]),
        changed(form="archive", target=None, columns=[], shape=[3], are_pixels="5.3 mmol/l"),
        changed(notes=["a\x1b[31m"]),
        changed(more=1),
        {name: value for name, value in PLAIN.items() if name != "notes"},
        column(name="a\nb"),
        column(known=77),
        column(mean=1e101),
        column(m2=-1.0),
        column(quantiles=[3.0, 2.0, 1.0]),
        column(1, categories={"f": 79, "m": 2}),
        target(classes={"0": 81}),
        target(classes={str(n): 1 for n in range(80)}),
        target(mean=1e150, m2=1e150),
        changed(form="archive", target=None, columns=[], shape=[20_000, 20_000]),
        [],
        7,
        None,
    ],
)
def test_a_value_that_no_site_can_have_is_refused(values: object) -> None:
    with pytest.raises(MalformedMessage) as caught:
        read_description(reply(json.dumps(values)))
    assert str(caught.value) == "its description of its data is malformed"


TABLE = "nr;chol;weight;note\n1;7,46;80;x\n2;-9;81,5;y\n"


def of(folder: Path, *lines: str) -> Site:
    (folder / "node.toml").write_text("\n".join(lines))
    return read_site(folder)


def test_names_units_missing_marks_and_columns_of_one_site(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    site = of(
        tmp_path, 'rename = {chol = "cholesterol"}', "scale = {cholesterol = 38.67}", "missing = [-9]",
        'header = "true"',
        'drop = ["nr"]', 'separator = ";"', 'decimal = ","', 'encoding = "latin-1"', "true-cluster = 1",
    )  # fmt: skip
    table = read_table(tmp_path / "data.csv", Declaration(target="note"), site)
    assert list(table.frame.columns) == ["cholesterol", "weight", "note"]
    assert table.frame["cholesterol"][0] == pytest.approx(7.46 * 38.67)
    assert table.frame["cholesterol"].isna().tolist() == [False, True]
    assert table.notes == ("read with semicolons, decimal commas, encoding latin-1",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('renam = {chol = "cholesterol"}', r"node\.toml: renam: there is no such key\. Did you mean rename\?"),
        ("scale = {chol = 0}", "scale: every factor must be a number other than 0"),
        ("missing = [true]", r"missing=\[True\]: must be a list of strings"),
        ('scale = {a = "2"}', r"scale=\{'a': '2'\}: must be a mapping of each name to a number"),
        ('decimal = "comma"', 'decimal: must be "." or ","'),
        ("a = ", "node.toml cannot be read"),
    ],
)
def test_a_mistyped_file_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of(tmp_path, line)


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (Site(rename={"col": "x"}), "has no column 'col', which rename in the node's file names"),
        (Site(columns=("a", "b", "c", "d")), "names the columns of a file without header; add header=false"),
    ],
)
def test_a_file_that_does_not_fit_the_table_is_refused(tmp_path: Path, site: Site, message: str) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "data.csv", Declaration(), site)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": "a", "drop": ["a"]}, "column 'a' is named as target and as drop"),
        ({"regression": True, "classes": {"a": [0], "b": [1]}}, "leave out one"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Declaration.of(values)
