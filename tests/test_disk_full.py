"""A disk that is full ends a run with the file's name and the command that goes on, and spoils nothing."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from florets.commands.main import main
from florets.reports import folder as folders
from florets.server_app.checkpoint import Checkpoints
from tests.test_resume import results, run_folder, settings

FULL = "No space left on device"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("florets.reports.run_page.draw_plots", lambda *_: {})
        folder = tmp_path_factory.mktemp("whole")
        assert main([*settings("fedavg", "num_rounds=3"), f"results_dir={folder}"]) == 0
        yield results(run_folder(folder))


@pytest.mark.parametrize(
    ("name", "times", "saved"),
    [
        ("rounds.jsonl", 2, "Round 2 is saved; "),
        ("round-000003.safetensors.part", 0, "Round 2 is saved; "),
    ],
)
def test_the_file_and_the_command_are_named_and_the_run_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    whole: dict[str, Any],
    name: str,
    times: int,
    saved: str,
) -> None:
    to_disk, left = folders._to_disk, [times]

    def full(file: IO[Any]) -> None:
        to_disk(file)
        if Path(file.name).name == name:
            left[0] -= 1
            if left[0] < 0:
                # What there was room for stays.
                os.truncate(file.name, Path(file.name).stat().st_size - 20)
                raise OSError(errno.ENOSPC, FULL)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "_to_disk", full)
        assert main([*settings("fedavg", "num_rounds=3"), f"results_dir={tmp_path}"]) == 1
    folder, told = run_folder(tmp_path), capsys.readouterr().err
    assert f"florets: the run failed: {folder}" in told
    assert f"{name.removesuffix('.part')} cannot be written: {FULL}. {saved}" in told
    assert told.endswith(f"go on with: florets resume={folder}\n")
    assert "Traceback" not in told
    assert not list(folder.rglob("*.part"))
    assert Checkpoints(folder).load() is not None
    assert main([f"resume={folder}"]) == 0
    assert results(folder) == whole


def test_a_log_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, _: str = "") -> None:
            raise OSError(errno.ENOSPC, FULL)

        flush = close = write

    monkeypatch.setattr(folders.RunLog, "_open", lambda _: Full())
    assert main([*settings("fedavg", "num_rounds=1"), f"results_dir={tmp_path}"]) == 0
    told = capsys.readouterr().err
    assert told.count(f"run.log cannot be written: {FULL}") == 1
    assert "Traceback" not in told
