"""The state of a run, from the files in its folder while it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.run_state import clients_of, state_of
from florets.server_app.recorder import Recorder
from tests.results_examples import CLIENTS, FOUND, MIXED, record, report

CONFIG = "experiment: tiny\nseed: 7\nnum_rounds: 8\nstrategy: {name: clove}\ntask: {data: digits, model: mlp}\n"


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """A run of eight rounds after two of them."""
    with Recorder(folder, CONFIG, "tiny", "clove", 7, 8, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        for number in (1, 2):
            recorder.round(report(number, assignment=MIXED if number == 1 else FOUND))
        yield


def test_a_run_that_was_ended_or_is_over(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), going_on(tmp_path / "ended"):
        raise RuntimeError("two of <four> clients")
    ended = state_of(tmp_path / "ended")
    assert (ended.status, ended.reason) == ("ended", "two of <four> clients")
    record(tmp_path / "over")
    assert state_of(tmp_path / "over").status == "finished"


def test_clients_are_those_of_whole_lines_each_with_its_last_group_and_reply(tmp_path: Path) -> None:
    assert clients_of(tmp_path) == ({}, {})
    (tmp_path / CLIENTS_OVER_ROUNDS).write_text(
        "round,client,cluster,sampled,reply,train_loss,test_loss\n"
        "1,a\u2028x\x85,0,true,ok,0.9,0.5\n1,b,1,true,ok,0.9,0.7\n2,b,,true,error,,\n2,a\u2028x\x85,1",
        encoding="utf-8",
    )
    contacts, groups = clients_of(tmp_path)
    assert groups == {"a\u2028x\x85": 0}
    assert (contacts["b"].answered, contacts["b"].failures, contacts["b"].outcome) == (1, 1, "error")
