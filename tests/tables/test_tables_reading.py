"""Reading of tables: forms of files that are detected, and those that are refused by file, line and remedy."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from florets.task.data.tables.declaration import Declaration, Site, is_table
from florets.task.data.tables.names import class_name
from florets.task.data.tables.read import Table, read_table

ROWS = "age,dose,ill\n61,0.5,yes\n54,1.25,no\n47,2,yes\n"


def read(folder: Path, content: str | bytes, name: str = "data.csv", site: Site | None = None, **declared) -> Table:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, Declaration(**declared), site or Site())


def columns(table: Table) -> dict[str, list]:
    """Values by column, None for a missing one."""
    found = table.frame.astype(object)
    return {name: [None if cell != cell else cell for cell in found[name]] for name in found.columns}


PLAIN = {"age": [61.0, 54.0, 47.0], "dose": [0.5, 1.25, 2.0], "ill": ["yes", "no", "yes"]}


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (ROWS, ""),
        (ROWS.replace(",", ";"), "read with semicolons"),
        (ROWS.replace(",", ";").replace(".", ","), "read with semicolons, decimal commas"),
        (ROWS.replace(",", "\t"), "read with tabs"),
        (ROWS.replace(",", "|"), "read with bars"),
        (ROWS.replace("\n", ",\n"), "a separator ends each line"),
        (ROWS.replace("\n", ",\n").replace("ill,", "ill"), "a separator ends each line"),
        (ROWS.replace("\n", "\r\n"), ""),
        (ROWS.replace("\n", "\n\n  \n"), ""),
        ("\n\n" + ROWS, ""),
        ("\ufeff" + ROWS, ""),
        (ROWS.replace(",", ", "), ""),
        (ROWS.replace("yes", '"yes"').replace("61", '"61"'), ""),
        (ROWS.encode("utf-16"), "encoding utf-16"),
        ('"age","dose","ill"\n61,"0,5",yes\n54,"1,25",no\n47,2,yes\n', "decimal commas"),
    ],
)
def test_the_form_of_a_file_is_found_and_told(tmp_path: Path, content: str | bytes, note: str) -> None:
    table = read(tmp_path, content)
    assert columns(table) == PLAIN
    assert note in "; ".join(table.notes) if note else table.notes == ()


def test_gzipped_files_other_endings_and_old_encodings(tmp_path: Path) -> None:
    assert columns(read(tmp_path, gzip.compress(ROWS.encode()), "data.csv.gz")) == PLAIN
    found = columns(read(tmp_path, "größe;ill\n1;süß\n2;no\n".encode("cp1252"), "export.TXT"))
    assert found == {"größe": [1.0, 2.0], "ill": ["süß", "no"]}
    assert [is_table(Path(name)) for name in ("a.csv", "a.TSV.gz", "a.data", ".a.csv", "a.npz", "a.gz")] == [
        *(True, True, True, False, False, False)
    ]


def test_cells_with_separators_quotes_and_line_breaks(tmp_path: Path) -> None:
    found = columns(read(tmp_path, 'a,text,y\n1,"one, two",0\n2,"a ""b""\nc",1\n3,5\' 6,0\n'))
    assert found["text"] == ["one, two", 'a "b"\nc', "5' 6"]


def test_missing_cells(tmp_path: Path) -> None:
    lines = ["a,b,kind", "1,?,red", ",2, NA ", "3,nan,", "-9,4,n/a", "5,None,blue"]
    found = columns(read(tmp_path, "\n".join(lines), missing=("-9",)))
    assert found["a"] == [1, None, 3, None, 5]
    assert found["b"] == [None, 2, None, 4, None]
    assert found["kind"] == ["red", None, None, None, "blue"]


def test_truth_values_are_words_of_one_spelling_also_where_some_are_missing(tmp_path: Path) -> None:
    found = columns(read(tmp_path, "a,b,c,n,y\nTrue,TRUE,x,1,0\nFalse,,y,2,1\n", categorical=("c",)))
    assert [class_name(cell) for cell in found["a"]] == ["true", "false"]
    assert class_name(found["b"][0]) == "true"
    assert found["b"][1] is None


@pytest.mark.parametrize("cell", ["1_000", "0x1F", "12a", "1,5"])
def test_what_only_looks_like_a_number_is_named_by_its_line(tmp_path: Path, cell: str) -> None:
    with pytest.raises(
        ValueError, match=r"data\.csv, column 'b': 1 of its 4 cells are not numbers, the first in line 5"
    ):
        read(tmp_path, f"a;b;y\n1;2.5;0\n\n2;3;1\n3;{cell};0\n4;5;1\n", site=Site(decimal="."))


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999", "1e200"])
def test_infinite_and_huge_numbers_are_named_by_their_line(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ValueError, match=r"line 3, column 'a': the number is infinite or too large"):
        read(tmp_path, f"a,y\n1,0\n{cell},1\n3,0\n")


def test_a_declared_target_keeps_its_text_and_takes_a_decimal_comma(tmp_path: Path) -> None:
    assert columns(read(tmp_path, "a,code\n1,01\n2,1e3\n", target="code"))["code"] == ["01", "1e3"]
    assert columns(read(tmp_path, "a;price\n1;2,5\n2;3,25\n", target="price"))["price"] == ["2.5", "3.25"]


def test_what_is_no_input_may_hold_anything(tmp_path: Path) -> None:
    found = columns(read(tmp_path, "a,b,c,y\n1,2,3,0\n2,x,4,1\n3,5,inf,0\n", drop=("b",), id=("c",)))
    assert found["b"] == ["2", "x", "5"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b;y\n1,2;0\n3,4;1\n", r"separator is ambiguous \(commas or semicolons\): name it .* separator = \";\""),
        ("a;y\n1,234;0\n2,345;1\n", "decimal mark is ambiguous"),
        ("a;b;y\n1,5;1.5;0\n2,5;2.5;1\n", "decimal mark is ambiguous"),
        ("y\n1\n0\n", "has only one column"),
        ("0.3,0.8,1\n0.9,0.4,0\n", "3 of the 3 names in its first line are numbers or dates, .*header=false"),
        ("red,2024-01-02,1\n", "2 of the 3 names"),
        ("F,typical,yes\nM,typical,no\nF,other,yes\n", "the name of column 1 is also a value of it"),
        ("a,b,a\n1,2,3\n", "column 3 has the name of an earlier one"),
        ("a,,y\n1,2,3\n", "column 2 has no name"),
        ("a,b,y\n1,2,0\n\n1,2\n", "line 4: it has 2 cells, but there are 3 columns"),
        ("a,b,y\n1,2,0\n1,2,3,4\n", "line 3: it has 4 cells, but there are 3 columns"),
        ('a,b,y\n1,"2,0\n1,2,0\n', "line 2: it has 2 cells"),
        ("a,y\n", "has no records"),
        (" \n", "is empty"),
        (f"{'a' * 201},y\n1,0\n", "the name of column 1 is too long, or not printable"),
        ("a\x07,y\n1,0\n", "the name of column 1 is too long, or not printable"),
        (b"a,y\n\x00\x01,\x00\n", "cannot be decoded as text"),
        ("a,y\n1,0\n".encode("utf-16-le"), "cannot be decoded as text"),
    ],
)
def test_a_file_that_cannot_be_read_for_certain_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)


def test_a_damaged_gzip_is_refused(tmp_path: Path) -> None:
    for content in (
        b"no gzip",
        gzip.compress(ROWS.encode())[:-9],
        gzip.compress(ROWS.encode() * 99)[:40] + b"x" * 30,
    ):
        with pytest.raises(ValueError, match=r"data\.csv\.gz cannot be read"):
            read(tmp_path, content, "data.csv.gz")


def test_a_row_index_without_a_name_is_left_out(tmp_path: Path) -> None:
    table = read(tmp_path, ",f0,y\n0,-0.7,0\n1,0.1,1\n")
    assert list(table.frame.columns) == ["f0", "y"]
    assert table.notes == ("its first column has no name and was left out as a row index",)


def test_a_file_without_header_is_read_with_declared_names(tmp_path: Path) -> None:
    content = "63.0,1.0,?,0\n67.0,1.0,2,1\n"
    table = read(tmp_path, content, header=False, columns=("age", "sex", "vessels", "ill"))
    assert columns(table) == {"age": [63, 67], "sex": [1, 1], "vessels": [None, 2], "ill": [0, 1]}
    with pytest.raises(ValueError, match="has 4 columns, but columns names 3"):
        read(tmp_path, content, header=False, columns=("a", "b", "c"))
    assert columns(read(tmp_path, content, site=Site(header=False, columns=("a", "b", "c", "d"))))["a"] == [63, 67]


def test_a_comma_file_longer_than_the_csv_modules_field_limit(tmp_path: Path) -> None:
    names = ",".join(f"column{number}" for number in range(15_000))
    table = read(tmp_path, f"{names}\n{','.join(['1.5'] * 15_000)}\n")
    assert table.frame.shape == (1, 15_000)
    assert np.all(table.frame.to_numpy() == 1.5)


def test_a_site_names_the_missing_mark_of_one_column(tmp_path: Path) -> None:
    site = Site(missing_in={"chol": ("0",), "kind": ("x",)})
    found = columns(read(tmp_path, "chol,sex,kind,y\n0,0,x,1\n210,1,b,0\n", site=site, categorical=("kind",)))
    assert found["chol"] == [None, 210]
    assert found["sex"] == [0, 1]
    assert found["kind"] == [None, "b"]


@pytest.mark.parametrize("lines", ["a;b;y\n1.234;2;0\n2.600;3;1\n", "a;b;y\n1.234;2,5;0\n900;3,5;1\n"])
def test_points_that_may_mark_thousands_are_refused(lines: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="points that may mark thousands"):
        read(tmp_path, lines)
    assert columns(read(tmp_path, lines.replace(",", "."), site=Site(decimal=".")))["a"][0] == 1.234


def test_what_a_class_is_declared_by_is_no_missing_value(tmp_path: Path) -> None:
    found = read(tmp_path, "a,y\n1,None\n2,mild\n", target="y", classes={"none": ("None",), "mild": ("mild",)})
    assert columns(found)["y"] == ["None", "mild"]
