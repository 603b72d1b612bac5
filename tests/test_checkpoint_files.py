"""Checkpoints that were damaged or made up: each is one problem, and the one before it is taken."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from florets.server_app import checkpoint as module
from florets.server_app.checkpoint import VERSION, Checkpoint, CheckpointError, Checkpoints
from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.state import State
from tests.fakes import models


def good(server_round: int) -> Checkpoint:
    return Checkpoint(server_round, models(1.0, 2.0), State({"a": 1}), [], {"seed": 0})


def content(**changes: object) -> str:
    values = {"version": VERSION, "round": 2, "config": {}, "clients": [], "models": [], "state": {"dict": []}}
    return json.dumps({**values, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "[" * 100_000,
        content(round="2"),
        content(round=True),
        content(config=[]),
        content(state=1),
        content(state={"object": 3, "fields": []}),
        content(state={"dict": [[{"dict": []}, 1]]}),
        content(models=[1]),
        content(clients=[{"name": 1}]),
    ],
)
def test_of_a_made_up_checkpoint_the_one_before_is_taken(tmp_path: Path, text: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    older = checkpoints.save(good(1))
    made_up = safetensors.numpy.save({}, {"checkpoint": text, "sha256": module._digest(text, {})})
    (tmp_path / "checkpoint" / "round-000002.safetensors").write_bytes(made_up)
    assert checkpoints.load() == good(1)
    older.unlink()
    with pytest.raises(CheckpointError, match=r"round-000002.*does not fit.*run the experiment again"):
        checkpoints.load()


def test_an_error_without_a_text_is_a_problem_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise MemoryError

    Checkpoints(tmp_path).save(good(1))
    monkeypatch.setattr(module, "safe_open", too_large)
    with pytest.raises(CheckpointError, match="MemoryError"):
        Checkpoints(tmp_path).load()


def test_clients_vectors_of_one_size_are_one_array() -> None:
    alike = {str(client): np.array([client, 0.5]) for client in range(3)}
    unlike = {"a": np.zeros(2), "b": np.zeros(2, dtype=np.float32)}
    state = {"alike": alike, "unlike": unlike, "alone": {"a": np.zeros(2)}, "none": {}}
    state |= {"numbers": {"a": np.array(1.0), "b": np.array(2.0)}, "large": {"a": np.zeros(129), "b": np.ones(129)}}
    arrays: dict[str, Any] = {}
    data = json.loads(json.dumps(encode(state, arrays)))
    assert len(arrays) == 1 + 2 + 1 + 2 + 2
    again = decode(data, arrays)
    for name, vectors in state.items():
        assert list(again[name]) == list(vectors)
        for key, values in vectors.items():
            assert (again[name][key].dtype, again[name][key].tobytes()) == (values.dtype, values.tobytes())
    # Each is a client's own.
    again["alike"]["0"][:] = 7
    assert again["alike"]["1"].tolist() == [1, 0.5]
    with pytest.raises(ValueError, match="shorter"):
        decode({"rows": [["0", "1"], "0 x"]}, {"0 x": np.zeros((1, 2))})
