"""Marked values: no error of a table's way quotes a cell, whatever is wrong with the table."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from florets.client_app.app import app
from florets.engines.local_grid import LocalGrid, answered
from florets.task.data.own import own
from florets.task.data.tables.agreement import agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.preprocessing import CategoricalInput, NumericInput, Preprocessing
from florets.task.data.tables.site_table import SiteTable
from florets.task.spec import DECLARED, PREPARED, ROWS_OF, TaskSpec
from florets.task.wire import kinds
from florets.task.wire.description import read_description

WORD, NUMBER = "Qx7mark", "918273.645"
GOOD = "\n".join(["a,b,kind,y", *(f"{n},{NUMBER},{WORD}{n % 2},{n % 2}" for n in range(30))]) + "\n"


def line(place: int, text: str, content: str = GOOD) -> str:
    lines = content.split("\n")
    lines[place] = text
    return "\n".join(lines)


# Content of the file, what the run declares, and lines of the site's own file.
REFUSED: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "words among numbers": (line(4, f"{WORD},{NUMBER},x,1"), {}, ""),
    "an underscore": (line(4, f"918_273,{NUMBER},x,1"), {}, ""),
    "infinite": (line(4, f"1e999,{NUMBER},{WORD},1"), {}, ""),
    "huge": (line(4, f"{NUMBER}e99,{NUMBER},{WORD},1"), {}, ""),
    "more cells": (line(4, f"1,{NUMBER},{WORD},1,{WORD}"), {}, ""),
    "fewer cells": (line(4, f"{NUMBER},{WORD}"), {}, ""),
    "an open quote": (line(4, f'"{WORD},{NUMBER},x,1'), {}, ""),
    "a quote in the middle": (line(4, f'1,{NUMBER},"{WORD}"{WORD},"1'), {}, ""),
    "a long cell": (line(4, f'1,2,"{WORD * 20_000}'), {}, ""),
    "a record as header": (line(0, f"{WORD},{NUMBER},x,y"), {}, ""),
    "a record of words as header": (line(0, f"a,b,{WORD}1,y"), {}, ""),
    "a record with a date as header": (line(0, f"{WORD},2024-03-05,c,y"), {}, ""),
    "a header with an equal cell": (line(0, f"{WORD},b,{WORD},y"), {}, ""),
    "a header with an empty cell": (line(0, f"{WORD},,{WORD}z,y"), {}, ""),
    "a header that cannot be printed": (line(0, f"{WORD}\x07,b,c,y"), {}, ""),
    "no records": (f"{WORD},b\n", {}, ""),
    "one column": (f"y\n{WORD}\n{NUMBER}\n", {}, ""),
    "an ambiguous separator": (f"a,b;y\n{WORD},2;0\n{NUMBER},4;1\n", {}, ""),
    "an ambiguous decimal mark": (f"a;b;y\n918,273;{NUMBER};0\n1,5;2.5;1\n", {}, ""),
    "no header and few names": (GOOD, {"header": False, "columns": ["a", "b"]}, ""),
    "an unknown encoding": (GOOD, {}, 'encoding = "utf-99"'),
    "another encoding": (GOOD + f"1,2,{WORD}ü,0\n", {}, 'encoding = "ascii"'),
    "no text": ((GOOD + "\0").encode(), {}, ""),
    "a scale of words": (GOOD, {}, "scale = {kind = 2.0}"),
    "a rename that is lacking": (GOOD, {}, 'rename = {z = "q"}'),
    "a target that is lacking": (GOOD, {"target": "z"}, ""),
    "a group that is lacking": (GOOD, {"group": "z"}, ""),
    "no target": ("a,y\n" + f"{NUMBER},\n{WORD}5,\n", {}, ""),
    "no complete record": ("a,k,y\n" + f"{NUMBER},,{WORD}\n" * 9, {"incomplete": "drop"}, ""),
    "one record": (f"a,b,y\n{NUMBER},{WORD},1\n", {}, ""),
    "one subject": (GOOD + "", {"group": "g", "drop": []}, 'rename = {b = "g"}'),
    "a class that cannot be printed": (line(4, f"1,2,3,{WORD}\x07"), {}, ""),
    "a long class": (line(4, f"1,2,3,{WORD * 40}"), {}, ""),
    "many classes": (
        "\n".join(["a,y", *(f"{n},{WORD}{n}" for n in range(99))]), {}, ""
    ),
    "a regression on words": (line(0, "a,b,y,z"), {"target": "y", "regression": True}, ""),
    "one class": ("\n".join(["a,y", *(f"{n},{WORD}" for n in range(30))]), {}, ""),
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


def test_a_server_cannot_ask_for_the_records_of_one_value(tmp_path: Path) -> None:
    """Whether there are any would be an answer; whose records are a node's own is in its config."""
    write(tmp_path, GOOD)
    for value in (WORD + "1", "nobody"):
        spec = TaskSpec(
            "own", "own", "mlp", "cross_entropy", 2, 0, 0, "", table={DECLARED: {"owner": "kind"}, ROWS_OF: value}
        )
        assert ROWS_OF not in spec.at_node(str(tmp_path), None).table
    assert spec.at_node(str(tmp_path), "x").table[ROWS_OF] == "x"


def test_a_damaged_archive_quotes_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(GOOD.encode(), 0)[:-20])
    with pytest.raises(ValueError, match="cannot be read") as caught:
        own(tmp_path, 0, 0)
    assert unmarked(str(caught.value))


PREPARE = Preprocessing((NumericInput("a", 0.0, 1.0, False),), (), "y", {"0": ("0",), "1": ("1",)})


@pytest.mark.parametrize(
    "prepared",
    [
        Preprocessing((NumericInput("kind", 0.0, 1.0, False),), (), "y", {"0": ("0",)}),
        Preprocessing((NumericInput("z", 0.0, 1.0, False),), (), "y", {"0": ("0",)}),
        Preprocessing((NumericInput("b", 0.0, 1e-45, False),), (), "y", {"0": ("0",), "1": ("1",)}),
        Preprocessing((), (CategoricalInput("kind", ("x",), True, "x", False),), "kind", {"0": ("0",)}),
        Preprocessing((NumericInput("a", 0.0, 1.0, False),), (), "kind", {}),
        Preprocessing((NumericInput("a", 0.0, 1.0, False),), (), "z", {}),
    ],
)
def test_preparing_quotes_no_cell(tmp_path: Path, prepared: Preprocessing) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - whatever it says
        own(tmp_path, 0, 0, table={PREPARED: prepared.to_plain()})
    assert unmarked(str(caught.value))


def test_disagreement_of_sites_quotes_no_cell(tmp_path: Path) -> None:
    """Categories that are frequent are named, by design; here all are rare."""
    rare = "\n".join(["a,b,kind,y", *(f"{n * 7 % 11},{NUMBER},{WORD}{n % 15},{n % 2}" for n in range(30))])
    others = "\n".join(["a,b,sort,y", *(f"{WORD}{n % 15},{n % 4},{n % 3},{n % 2}" for n in range(30))])
    sites = {}
    for key, content in {"west": rare, "east": rare, "north": others}.items():
        (tmp_path / key).mkdir()
        sites[key] = SiteTable.read((write(tmp_path / key, content) / "data.csv",), {}, 0).describe()
        reply = describe(tmp_path / key, {})
        assert not reply.has_error()
        assert WORD not in str(read_description(reply.content)[1])
    found = agree(Declaration(), sites)
    assert found.left_out.keys() == {"north"}
    assert unmarked(" ".join([*found.notes, *found.left_out.values()]))


def test_marks_are_seen() -> None:
    assert not unmarked(f"... {WORD}3")
    assert not unmarked(str(np.float64(NUMBER)))
