"""A site's own file: what its tables have otherwise than the run says, and keys that are mistyped."""

from pathlib import Path

import pytest

from florets.task.data.tables.declaration import Declaration, Site, read_site
from florets.task.data.tables.read import read_table

TABLE = "nr;chol;weight;note\n1;7,46;80;x\n2;-9;81,5;y\n"


def of(folder: Path, *lines: str) -> Site:
    (folder / "node.toml").write_text("\n".join(lines))
    return read_site(folder)


def test_names_units_missing_marks_and_columns_of_one_site(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    site = of(
        tmp_path, 'rename = {chol = "cholesterol"}', "scale = {cholesterol = 38.67}", "missing = [-9]",
        'drop = ["nr"]', 'separator = ";"', 'decimal = ","', 'encoding = "latin-1"', "true-cluster = 1",
    )  # fmt: skip
    table = read_table(tmp_path / "data.csv", Declaration(target="note"), site)
    assert list(table.frame.columns) == ["cholesterol", "weight", "note"]
    assert table.frame["cholesterol"][0] == pytest.approx(7.46 * 38.67)
    assert table.frame["cholesterol"].isna().tolist() == [False, True]
    assert table.notes == ("read with semicolons, decimal commas, encoding latin-1",)


def test_a_target_in_another_unit_is_scaled(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,price\n1,2\n2,3\n")
    frame = read_table(tmp_path / "data.csv", Declaration(target="price"), Site(scale={"price": 0.5})).frame
    assert frame["price"].tolist() == [1.0, 1.5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('renam = {chol = "cholesterol"}', r"node\.toml: renam: there is no such key\. Did you mean rename\?"),
        ('seperator = ";"', r"Did you mean separator\?"),
        ("units = {a = 1}", "units: there is no such key"),
        ('rename = "chol"', "node.toml: rename: must be a mapping"),
        ('scale = {chol = "2"}', "scale: every factor must be a number"),
        ("scale = {chol = 0}", "scale: every factor must be a number other than 0"),
        ("missing = [true]", "true and false are no names"),
        ('separator = ";;"', "node.toml: separator: must be one character"),
        ('decimal = "comma"', 'decimal: must be "." or ","'),
        ("header = 1", "node.toml: header=1: is of the wrong type"),
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
        (Site(drop=("col",)), "has no column 'col', which drop"),
        (Site(scale={"col": 2.0}), "has no column 'col', which scale"),
        (Site(scale={"note": 2.0}), "'note' has a scale in the node's file, but holds no numbers"),
        (Site(rename={"nr": "weight"}), "column 3 has the name of an earlier one"),
        (Site(encoding="utf-99"), "encoding='utf-99' of the node's file is unknown"),
        (Site(columns=("a", "b", "c", "d")), "names the columns of a file without header; add header=false"),
        (Site(separator=","), "line 2: it has 2 cells, but there are 1 columns"),
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
        ({"standardise": "all"}, "must be pooled, site or none"),
        ({"test_share": 1.0}, "must be between 0 and 1"),
        ({"header": False}, "name the file's columns"),
        ({"columns": [True]}, "true and false are no names"),
        ({"targets": "a"}, "there is no such key"),
        ({"classes": {"a": [0], "b": [0, 1]}}, "no cell twice"),
        ({"classes": {"a": [0]}}, "at least two classes"),
        ({"regression": True, "classes": {"a": [0], "b": [1]}}, "leave out one"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Declaration.of(values)


def test_a_person_may_be_id_and_group(tmp_path: Path) -> None:
    declared = Declaration.of({"id": ["pid"], "group": "pid", "classes": {"none": 0, "ill": [1, "2"]}})
    assert declared.inputs_of(("pid", "a")) == ("a",)
    assert declared.classes == {"none": ("0",), "ill": ("1", "2")}
