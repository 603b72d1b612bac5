"""Any file: what a CSV writer wrote is read back, and what is no table is refused by a ValueError alone."""

import contextlib
import csv
import io
import math
import tempfile
from pathlib import Path

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from florets.task.data.tables.declaration import MISSING, Declaration, Site
from florets.task.data.tables.read import read_table

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8
)
NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
SAFE = WORDS.map(lambda word: f"w{word.strip()}").filter(lambda word: word not in MISSING)


def read(content: bytes, site: Site | None = None, **declared) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        path.write_bytes(content)
        return read_table(path, Declaration(**declared), site or Site()).frame


@settings(max_examples=100, deadline=None)
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
    frame = read(
        stream.getvalue().encode(encoding), Site(separator=separator, decimal="."), categorical=("word", "gap")
    )
    assert [None if math.isnan(cell) else cell for cell in frame["number"]] == [row[0] for row in rows]
    assert frame["word"].tolist() == [row[1].strip() for row in rows]
    assert [None if cell is None else cell for cell in frame["gap"]] == [row[2] and row[2].strip() for row in rows]


PIECES = st.sampled_from([
    *(",", ";", "\t", "|", "\n", "\r\n", '"', "'", " ", "a", "y", "1", "-2.5", "1,5", "1.234", "?", "NA", "true"),
    *("\ufeff", "\0", "é", "\x85", "\u2028", "\x0b", "\x1c", "\x07", "1e999", "1_0", "2024-01-02", "="),
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(["utf-8", "utf-16", "cp1252", "latin-1"]))
@example('"\t', "utf-8")
def test_no_file_breaks_the_reader(text: str, encoding: str) -> None:
    try:
        frame = read(text.encode(encoding, errors="replace"))
    except ValueError:
        return
    assert len(frame) > 0
    assert all(dtype in ("float64", "object") for dtype in frame.dtypes)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert len(read(content)) > 0
