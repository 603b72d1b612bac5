"""Marked values in a node's files: no refusal of theirs that reaches the server holds one."""

import importlib
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from PIL import Image

from florets.client_app.app import app
from florets.client_app.session import session
from florets.engines.local_grid import LocalGrid
from florets.task.spec import TaskSpec
from florets.task.wire import kinds

WORD, NUMBER, WHOLE = "SECRET42", 987654.25, 987654
MARKS = (WORD, "987654")
X, Y = np.full((6, 3), NUMBER, dtype=np.float32), np.arange(6) % 2
Make = Callable[[Path], None]


def refusal(folder: Path, options: dict[str, Any], more: dict[str, Any]) -> str:
    """Return the error text of a real node, as it is sent to the server."""
    LocalGrid(app, 1)  # lets messages be built
    session.adopt(None)
    agreed = {"partition_options": {"input_shape": [3], "num_outputs": 2}, "loss": "cross_entropy", **more}
    spec = TaskSpec(
        "own", "own", "linear", num_clients=1, num_clusters=0, seed=0, data_dir="", data_options=options, **agreed
    )  # type: ignore[arg-type]
    content = RecordDict({kinds.CONFIG: ConfigRecord({kinds.TASK: spec.to_json()})})
    with pytest.raises(Exception, match=r".") as caught:
        app(Message(content, 2, kinds.HELLO), Context(1, 2, {"data-dir": str(folder)}, RecordDict(), {}))
    return f"{type(caught.value)} {caught.value}"


def archive(**arrays: Any) -> Make:
    return lambda folder: np.savez(folder / "data.npz", **arrays)


def raw(*members: bytes) -> Make:
    """Return what writes an archive whose arrays are these bytes."""

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "data.npz", "w") as file:
            for name, member in zip(("x.npy", "y.npy"), members, strict=False):
                file.writestr(name, member)

    return make


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def headed(header: str) -> bytes:
    """Return the bytes of an array file with a header of one's own."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + WORD.encode() * 9


def cut(folder: Path) -> None:
    archive(x=X, y=Y)(folder)
    whole = (folder / "data.npz").read_bytes()
    (folder / "data.npz").write_bytes(whole[:100] + WORD.encode() + whole[120:])


@pytest.mark.parametrize(
    ("make", "options", "more"),
    [
        (archive(**{WORD: X}), {}, {}),
        (lambda folder: (folder / "data.npz").write_text(WORD), {}, {}),
        (cut, {}, {}),
        (raw(headed(f"{{'descr': '{WORD}', 'fortran_order': False, 'shape': (6, 3)}}\n"), npy(Y)), {}, {}),
        (raw(headed(f"{WORD} is no header\n"), npy(Y)), {}, {}),
        (archive(x=np.array([[{WORD: NUMBER}]]), y=Y[:1]), {}, {}),
        (archive(x=np.full((6, 3), WORD), y=Y), {}, {}),
        (archive(x=np.where(np.eye(6, 3) > 0, np.nan, X), y=Y), {}, {}),
        (archive(x=X, y=np.full(6, WORD)), {}, {}),
        (archive(x=X, y=np.full(6, WORD)), {"classes": ["cat", "dog"]}, {}),
        (archive(x=X, y=np.full(6, NUMBER)), {}, {}),
        (archive(x=X, y=np.full(6, WHOLE)), {}, {}),
        (archive(x=X, y=np.full(6, WHOLE)), {"classes": ["cat", "dog"]}, {}),
        (archive(x=X, y=Y), {}, {"loss": "squared_error"}),
    ],
)
def test_no_refusal_of_an_archive_quotes_it(
    make: Make, options: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    make(tmp_path)
    with np.errstate(all="ignore"):
        text = refusal(tmp_path, options, more)
    assert not [mark for mark in MARKS if mark in text], text


def picture(place: str, size: int = 2, write: bytes | None = None) -> Make:
    def make(folder: Path) -> None:
        path = folder / "data" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if write is None:
            Image.new("L", (size, size), 77).save(path)
        else:
            path.write_bytes(write)

    return make


def both(*makes: Make) -> Make:
    return lambda folder: [make(folder) for make in makes] and None


def png(chunk: bytes) -> bytes:
    file = io.BytesIO()
    Image.new("L", (2, 2), 77).save(file, "png")
    return file.getvalue()[:33] + len(WORD).to_bytes(4, "big") + chunk + WORD.encode() * 3


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (picture(f"{WORD}/1.png"), ["cat"]),
        (both(picture("cat/1.png"), picture(f"{WORD}/1.png")), ["cat"]),
        (picture(f"cat/{WORD}.png", write=WORD.encode()), ["cat"]),
        (picture(f"cat/{WORD}.png", write=png(b"IDAT")), ["cat"]),
        (both(picture(f"cat/{WORD}.png", 2), picture(f"cat/{WORD}2.png", 3)), ["cat"]),
    ],
)
def test_no_refusal_of_images_names_what_the_server_has_not(make: Make, classes: Any, tmp_path: Path) -> None:
    make(tmp_path)
    text = refusal(tmp_path, {} if classes is None else {"classes": classes}, {})
    assert not [mark for mark in MARKS if mark in text], text


def ours(body: str) -> Callable[..., Any]:
    """Return a function of the project with this body."""
    scope: dict[str, Any] = {"__name__": "florets.task.data.own", "np": np}
    exec(f"def fails(*_):\n  {body}", scope)
    function: Callable[..., Any] = scope["fails"]
    return function


@pytest.mark.parametrize(
    "fails",
    [
        *(lambda *_: [][WHOLE], lambda *_: np.array([WORD]).astype(float), chr),
        ours(f"float('{WORD}')"),
        ours(f"[float(word) for word in ['{WORD}']]"),
        ours(f"try: float('{WORD}')\n  except ValueError: raise"),
    ],
)
def test_an_unexpected_error_keeps_its_text(
    fails: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(x=X, y=Y)(tmp_path)
    monkeypatch.setattr(importlib.import_module("florets.task.data.own"), "read_npz", fails)
    text = refusal(tmp_path, {}, {})
    assert "Error: unexpected error; its text may quote this node's data and is only in the node's log" in text
    assert not [mark for mark in MARKS if mark in text], text


def test_a_package_that_a_node_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(x=X, y=Y)(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(
        importlib.import_module("florets.task.data.own"), "read_npz", ours("from pandas import DataFrame")
    )
    assert "this node lacks pandas, which the run needs; pip install pandas there" in refusal(tmp_path, {}, {})


def test_an_error_that_the_project_raises_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(x=X, y=Y)(tmp_path)
    raised = ours("try: raise ValueError('give another')\n  finally: print(end='')")
    monkeypatch.setattr(importlib.import_module("florets.task.data.own"), "read_npz", raised)
    assert "give another" in refusal(tmp_path, {}, {})
