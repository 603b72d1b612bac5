"""Operating a run: it is stopped and goes on to equal bits, and its state is shown in a few lines."""

from pathlib import Path
from typing import Any

import pytest

from florets.commands import status, verbs
from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.folder import FolderLock
from florets.reports.run_state import clients_of, state_of
from florets.server_app.checkpoint import Checkpointing
from florets.server_app.recorder import Recorder, read_summary
from florets.strategies.base.report import ClientRound
from tests.results_examples import CLIENTS, record, report
from tests.test_resume import results, resumed, run_folder, settings, straight


def stopped(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: list[str], during: int) -> Path:
    """Run with `florets stop` called during a round; return the run's folder."""
    from florets.server_app.experiment import _Run

    on_round = _Run.on_round

    def stopping(self: Any, told: Any, arrays: Any) -> bool:
        if told.server_round == during:
            status.stop(str(folder))
        return on_round(self, told, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(_Run, "on_round", stopping)
        straight(folder, keys)
    return run_folder(folder)


@pytest.mark.parametrize(
    "more", [["checkpoint_every=4"], pytest.param(["workers=2", "batch_clients=off"], marks=pytest.mark.slow)]
)
def test_a_stopped_run_has_its_results_and_goes_on_to_equal_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    keys = settings("clove", *more)
    whole = results(straight(tmp_path / "whole", keys))
    folder = stopped(monkeypatch, tmp_path / "stopped", keys, during=3)
    summary = read_summary(folder)
    assert (summary.rounds, summary.stopped) == (3, True)
    (warning,) = summary.warnings
    assert warning == f"stopped after round 3 of 6. Round 3 is saved; go on with: florets resume={folder}"
    assert (folder / "models.safetensors").is_file()
    assert summary.final_accuracy is not None
    assert state_of(folder).words == "Stopped after round 3 of 6; it can go on."
    # The same command would lose its rounds.
    assert main([*keys, f"results_dir={tmp_path / 'stopped'}"]) == 2
    assert "holds an interrupted run, saved after round 3" in capsys.readouterr().err
    # A checkpoint more than `checkpoint_every` asks for.
    assert results(resumed(folder)) | {"checkpoints": None} == whole | {"checkpoints": None}


@pytest.mark.slow
def test_a_sweep_keeps_no_stopped_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["-m", *settings("fedavg", "num_rounds=3"), "seed=0", f"results_dir={tmp_path}"]
    after = Checkpointing.after

    def stopping(self: Checkpointing, done: int, models: Any) -> None:
        after(self, done, models)
        status.stop(str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "after", stopping)
        assert main(sweep) == 1
    assert "failed: stopped after 1 round" in capsys.readouterr().out
    assert main([*sweep, "--continue"]) == 0
    assert read_summary(run_folder(tmp_path)).rounds == 3


def test_what_cannot_be_stopped_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "a")
    with pytest.raises(ConfigError, match="no run is in progress"):
        status.stop(str(tmp_path))
    record(tmp_path / "b")
    with FolderLock(tmp_path / "a"), FolderLock(tmp_path / "b"), pytest.raises(ConfigError, match="several runs are"):
        status.stop(str(tmp_path))
    with pytest.raises(ConfigError, match="takes <folder>, and was given a, b"):
        verbs.run("stop", ["a", "b"])
    (tmp_path / "kept").write_text("precious")
    (tmp_path / "a" / "stop").symlink_to(tmp_path / "kept")
    with FolderLock(tmp_path / "a"), pytest.raises(OSError, match="stop cannot be written: it is a symbolic link"):
        status.stop(str(tmp_path / "a"))


def test_status_names_who_is_late_and_for_how_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        "00": "ok ok ok ok",
        "01": "ok missing missing missing",
        "02": "ok ok - -",
        "03": "error ok ok invalid",
    }
    with Recorder(
        tmp_path / "run", "experiment: tiny\nseed: 7\nnum_rounds: 8\nstrategy: {name: clove}\n", "tiny", "clove", 7, 8
    ) as recorder:
        recorder.clients(CLIENTS)
        for number in range(1, 5):
            parts = {
                key: ClientRound(reply=one) for key, of in answers.items() if (one := of.split()[number - 1]) != "-"
            }
            recorder.round(report(number, clients=parts, replies={"ok": 1, "missing": 1, "error": 0, "invalid": 1}))
        status.status(str(tmp_path))
        status.stop(str(tmp_path))
        status.status(str(tmp_path))
    said = capsys.readouterr().out
    assert "Running: round 4 of 8; about 4 s left." in said
    assert "4 s left. It was asked to stop after the current round." in said
    assert "Test of round 4: ARI 1.000  accuracy 75.00%" in said
    assert "Groups: 2 (clients 2, 2), not stable" in said
    assert "Clients: 4, late: 2" in said
    assert "| 01     | 1     | round 1    | late for 3 rounds (last: missing)" in said
    assert "| 02     | 0     | round 2    | not asked for 2 rounds (offline, or not sampled)" in said
    assert "| 03     | 0     | round 3    | late for 1 round (last: invalid)" in said
    # Nobody holds the folder now, and the log does not say that the run ended.
    record(tmp_path / "over")
    status.status(str(tmp_path))
    said = capsys.readouterr().out
    assert "over: Finished after 3 rounds." in said
    assert "run: No process is at work, after 4 rounds: it was killed, and has no checkpoint." in said
    (tmp_path / "run" / "checkpoint").mkdir()
    (tmp_path / "run" / "checkpoint" / "round-000004.safetensors").touch()
    status.status(str(tmp_path))
    assert "after 4 rounds: it was killed, and can go on." in capsys.readouterr().out


def test_status_takes_one_folder_with_a_run() -> None:
    for arguments, said in ((["a", "b"], "takes <folder>, and was given a, b"), (["nowhere"], "holds no run")):
        with pytest.raises(ConfigError, match=said):
            verbs.run("status", arguments)


def test_a_run_that_was_ended_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Recorder(tmp_path, "num_rounds: 8\n", "tiny", "clove", 7, 8, quiet=True):
        raise RuntimeError("two of <four> clients")
    assert (state_of(tmp_path).status, state_of(tmp_path).reason) == ("ended", "two of <four> clients")


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
