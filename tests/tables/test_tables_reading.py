"""Reading of tables: forms of files that are detected, and those that are refused by file, line and remedy."""

import csv
import gzip
import io
import math
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from hypothesis import example, given, settings
from hypothesis import strategies as st

from florets.client_app.app import app
from florets.engines.local_grid import LocalGrid, answered
from florets.task.data.own import own
from florets.task.data.tables.declaration import MISSING, Declaration, Site, is_table
from florets.task.data.tables.read import Table, read_table
from florets.task.data.tables.site_table import SiteTable
from florets.task.spec import DECLARED, TaskSpec
from florets.task.wire import kinds

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
        (ROWS.replace("\n", ",\n"), "a separator ends each line"),
        (ROWS.replace("\n", "\r\n"), ""),
        ("\ufeff" + ROWS, ""),
        (ROWS.replace("yes", '"yes"').replace("61", '"61"'), ""),
        (ROWS.encode("utf-16"), "encoding utf-16"),
        ('"age","dose","ill"\n61,"0,5",yes\n54,"1,25",no\n47,2,yes\n', "decimal commas"),
        ("sep=;\n" + ROWS.replace(",", ";"), "read with semicolons"),
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


def test_missing_cells(tmp_path: Path) -> None:
    lines = ["a,b,kind", "1,?,red", ",2, NA ", "3,nan,", "-9,4,n/a", "5,None,blue"]
    found = columns(read(tmp_path, "\n".join(lines), missing=("-9",)))
    assert found["a"] == [1, None, 3, None, 5]
    assert found["b"] == [None, 2, None, 4, None]
    assert found["kind"] == ["red", None, None, None, "blue"]


def test_few_different_numbers_and_words_are_categories_and_one_mark_for_many_is_refused(tmp_path: Path) -> None:
    rows = [f"{n},{cell},{n % 2}" for n, cell in enumerate(["0", "1", "2.0", "3+"] * 3)]
    assert columns(read(tmp_path, "\n".join(["a,uses,y", *rows])))["uses"][:4] == ["0", "1", "2.0", "3+"]
    rows = [f"{n},{'-' if n % 5 else n},{n % 2}" for n in range(60)]
    with pytest.raises(ValueError, match="column 'b': 48 of its 60 cells are not numbers, the first in line 3"):
        read(tmp_path, "\n".join(["a,b,y", *rows]))


def test_one_column_may_hold_its_own_name(tmp_path: Path) -> None:
    found = columns(read(tmp_path, "Years,Remote,y\n3,Remote,no\n5,Not,yes\n"))
    assert found["Remote"] == ["Remote", "Not"]
    assert "Remote" in columns(read(tmp_path, "Remote,Role,y\nRemote,dev,no\nNot,ops,yes\n"))


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["0", "1", "-"], "7 of its 21 cells are not numbers, the first in line 4. If they mark missing values"),
        (
            ["1", "2", "unknown"],
            "7 of its 21 cells are not numbers, the first in line 4. If they mark missing values",
        ),
        ([str(n / 10) for n in range(20)] + ["x"], "1 of its 21 cells are not numbers, the first in line 22"),
        (["yes", "no", "unknown"], ""),
        (["0", "1", "3+"], ""),
    ],
)
def test_a_target_of_numbers_with_a_word_for_unknown_is_refused(tmp_path: Path, cells: list, problem: str) -> None:
    rows = [f"{n},{cells[n % len(cells)]}" for n in range(21)]
    (tmp_path / "data.csv").write_text("\n".join(["a,y", *rows]))

    def check(**declared) -> SiteTable:
        return SiteTable.read((tmp_path / "data.csv",), {DECLARED: declared}, 0)

    if not problem:
        assert check().untargeted == 0
        return
    # Whether the last column is named as the target or taken for it.
    for declared in ({}, {"target": "y"}):
        with pytest.raises(ValueError, match=rf"{problem}"):
            check(**declared)
    classes = {str(n): [cell] for n, cell in enumerate(cells)}
    assert check(target="y", classes=classes).untargeted == 0
    assert check(target="y", missing=[cells[-1]]).untargeted == 21 // len(cells)


@pytest.mark.parametrize("column", ["1.200 95 3.125", "1.200 1250 950"])
def test_three_decimals_are_no_thousands_unless_the_column_can_be_read_in_no_other_way(
    column: str, tmp_path: Path
) -> None:
    cells = column.split()
    found = read(tmp_path, "a,b\n" + "".join(f"{cell},1.5\n" for cell in cells))
    assert columns(found)["a"] == [float(cell) for cell in cells]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b;y\n1,2;0\n3,4;1\n", r"separator is ambiguous \(commas or semicolons\): name it .* separator = \";\""),
        ("a;b,c,y\n", r"data\.csv has no records"),
        ("a;b,c,y\n1,2,0\n3,4\n5,6,1\n", r"data\.csv, line 3: it has 2 cells, but there are 3 columns"),
        ("a;y\n1,234;0\n2,345;1\n", "decimal mark is ambiguous"),
        ("a,b,y\n1.5,950,0\n2.5,1.200,1\n", "points that may mark thousands.* decimal = "),
        ("y\n1\n0\n", "has only one column"),
        ("0.3,0.8,1\n0.9,0.4,0\n", "3 of the 3 names in its first line are numbers or dates, .*header = false"),
        ("F,typical,yes\nM,typical,no\nF,other,yes\n", "the names of most columns .* are also values of them"),
        ("Export, of 2024\na;b;y\n1;2;0\n3;4;1\n", r"line 1 seems to be a title or comment .* begin with line 2"),
        ("Export;;\na;b;y\n1;2;0\n", r"line 1: column 2 has no name; .* If this line is a title"),
        (f"{'a' * 201},y\n1,0\n", "the name of column 1 is too long, or not printable"),
        (b"a,y\n\x00\x01,\x00\n", "cannot be decoded as text"),
    ],
)
def test_a_file_that_cannot_be_read_for_certain_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)


def test_only_the_site_can_say_that_its_first_line_of_numbers_holds_names(tmp_path: Path) -> None:
    content = "400,410,y\n0.1,0.2,0\n0.3,0.4,1\n"
    with pytest.raises(ValueError, match=r"only the site can say so, since they leave it: header = true"):
        read(tmp_path, content)
    assert columns(read(tmp_path, content, site=Site(header=True))) == {
        "400": [0.1, 0.3],
        "410": [0.2, 0.4],
        # Without a declared target it is the last column, which is kept as it is written.
        "y": ["0", "1"],
    }


def test_a_file_without_header_is_read_with_the_names_that_its_site_declares(tmp_path: Path) -> None:
    content = "63.0,1.0,?,0\n67.0,1.0,2,1\n"
    table = read(tmp_path, content, site=Site(header=False, columns=("age", "sex", "vessels", "ill")))
    assert columns(table) == {"age": [63, 67], "sex": [1, 1], "vessels": [None, 2], "ill": ["0", "1"]}
    with pytest.raises(ValueError, match=r"has 4 columns, and columns in its node.toml .* names 3"):
        read(tmp_path, content, site=Site(header=False, columns=("a", "b", "c")))


def test_a_site_names_the_missing_mark_of_one_column(tmp_path: Path) -> None:
    site = Site(missing_in={"chol": ("0",), "kind": ("x",)})
    found = columns(read(tmp_path, "chol,sex,kind,y\n0,0,x,1\n210,1,b,0\n", site=site, categorical=("kind",)))
    assert found["chol"] == [None, 210]
    assert found["sex"] == [0, 1]
    assert found["kind"] == [None, "b"]


WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8
)
NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
SAFE = WORDS.map(lambda word: f"w{word.strip()}").filter(lambda word: word not in MISSING)


def frame_of(content: bytes, site: Site | None = None, **declared) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        path.write_bytes(content)
        return read_table(path, Declaration(**declared), site or Site()).frame


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.none() | NUMBERS, SAFE, st.none() | SAFE), min_size=1, max_size=20),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_what_was_written_is_read_back(rows: list, separator: str, end: str, encoding: str) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator, lineterminator=end)
    writer.writerow(["number", "word", "gap"])
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    frame = frame_of(
        stream.getvalue().encode(encoding), Site(separator=separator, decimal="."), categorical=("word", "gap")
    )
    assert [None if math.isnan(cell) else cell for cell in frame["number"]] == [row[0] for row in rows]
    assert frame["word"].tolist() == [row[1].strip() for row in rows]
    assert [None if cell is None else cell for cell in frame["gap"]] == [row[2] and row[2].strip() for row in rows]


PIECES = st.sampled_from([
    *(",", ";", "\t", "|", "\n", "\r\n", '"', "'", " ", "a", "y", "1", "-2.5", "1,5", "1.234", "?", "NA", "true"),
    *("\ufeff", "\0", "é", "\x85", "\u2028", "\x0b", "\x1c", "\x07", "1e999", "1_0", "2024-01-02", "="),
])  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(["utf-8", "utf-16", "cp1252", "latin-1"]))
@example('"\t', "utf-8")
def test_no_file_breaks_the_reader(text: str, encoding: str) -> None:
    try:
        frame = frame_of(text.encode(encoding, errors="replace"))
    except ValueError:
        return
    assert len(frame) > 0
    assert all(dtype in ("float64", "object") for dtype in frame.dtypes)


WORD, NUMBER = "Qx7mark", "918273.645"
GOOD = "\n".join(["a,b,kind,y", *(f"{n},{NUMBER},{WORD}{n % 2},{n % 2}" for n in range(30))]) + "\n"


def line(place: int, text: str, content: str = GOOD) -> str:
    lines = content.split("\n")
    lines[place] = text
    return "\n".join(lines)


# Content of the file, what the run declares, and lines of the site's own file.
REFUSED: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "words among numbers": (line(4, f"{WORD},{NUMBER},x,1"), {}, ""),
    "infinite": (line(4, f"1e999,{NUMBER},{WORD},1"), {}, ""),
    "a record as header": (line(0, f"{WORD},{NUMBER},x,y"), {}, ""),
    "a header that cannot be printed": (line(0, f"{WORD}\x07,b,c,y"), {}, ""),
    "no records": (f"{WORD},b\n", {}, ""),
    "an ambiguous separator": (f"a,b;y\n{WORD},2;0\n{NUMBER},4;1\n", {}, ""),
    "an ambiguous decimal mark": (f"a;b;y\n918,273;{NUMBER};0\n1,5;2.5;1\n", {}, ""),
    "another encoding": (GOOD + f"1,2,{WORD}ü,0\n", {}, 'encoding = "ascii"'),
    "no text": ((GOOD + "\0").encode(), {}, ""),
    "no target": ("a,y\n" + f"{NUMBER},\n{WORD}5,\n", {}, ""),
    "one subject": (GOOD + "", {"group": "g", "drop": []}, 'rename = {b = "g"}'),
    "a long class": (line(4, f"1,2,3,{WORD * 40}"), {}, ""),
    "many classes": (
        "\n".join(["a,y", *(f"{n},{WORD}{n}" for n in range(99))]), {}, ""
    ),
    "nothing to learn from": ("\n".join(["a,y", *(f"{NUMBER},{n % 2}" for n in range(30))]), {}, ""),
}  # fmt: skip


def write(folder: Path, content: str | bytes, file: str = "") -> Path:
    (folder / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "node.toml").write_text(file)
    return folder


def unmarked(text: str) -> bool:
    return not any(mark in text for mark in (WORD, WORD.lower(), "918273", "918_273", "918,273", "03-05"))


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_quotes_no_cell(tmp_path: Path, case: str) -> None:
    content, declared, file = REFUSED[case]
    write(tmp_path, content, file)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - whatever it says
        own(tmp_path, 0, 0, table={DECLARED: declared})
    assert unmarked(str(caught.value)), str(caught.value)
    # And to the server, as the reply of a real node.
    reply = describe(tmp_path, declared)
    assert unmarked(reply.error.reason if reply.has_error() else "")


def describe(folder: Path, declared: dict[str, Any], node: dict[str, Any] | None = None) -> Message:
    spec = TaskSpec("own", "own", "mlp", "cross_entropy", 2, 0, 0, "", table={DECLARED: declared} if declared else {})
    config = ConfigRecord({kinds.TASK: spec.to_json(), kinds.SEED: 0, kinds.DEVICE: "cpu"})
    settings: dict[str, Any] = {"data-dir": str(folder), **(node or {})}
    context = Context(run_id=1, node_id=2, node_config=settings, state=RecordDict(), run_config={})
    LocalGrid(app, 1)  # lets messages be built
    return answered(app, Message(RecordDict({kinds.CONFIG: config}), 2, kinds.DESCRIBE), context)
