"""Files that runs leave: who can read them, links in their place, and full disks."""

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from florets.commands.main import main
from florets.reports import folder as folders
from florets.server_app.checkpoint import Checkpoints
from tests.results_examples import record
from tests.test_resume import results, run_folder, settings


def test_a_link_in_the_place_of_a_file_is_never_followed(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "run"
    kept.mkdir()
    (kept / "file").write_text("precious")
    folder.mkdir()
    # A writer of whole files replaces a link, the one of an unfinished file among them; one that appends refuses it.
    for name in ("table.csv", "table.csv.part", "lines", "run.log"):
        (folder / name).symlink_to(kept / "file")
    folders.write_whole(folder / "table.csv", "new")
    assert not (folder / "table.csv").is_symlink()
    with pytest.raises(
        folders.WriteFailed, match=r"lines cannot be written: it is a symbolic link, and none is followed"
    ):
        folders.append_lines(folder / "lines", "new")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        folders.RunLog(folder / "run.log")
    (folder / "checkpoint").symlink_to(kept)
    with pytest.raises(folders.WriteFailed, match="checkpoint cannot be written: it is a symbolic link"):
        folders.make_inside(folder / "checkpoint")
    # A linked marker makes no folder a run's.
    (folder / folders.MARKER).symlink_to(kept / "file")
    with pytest.raises(ValueError, match="is not an earlier run's folder"):
        folders.open_folder(folder)
    assert (kept / "file").read_text() == "precious"
    assert [path.name for path in kept.iterdir()] == ["file"]


def test_links_in_a_runs_folder_go_with_an_earlier_run(tmp_path: Path) -> None:
    record(tmp_path / "run")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "curves.png").write_text("precious")
    for name in ("curves.png", "run.log", "report.html"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "kept" / "curves.png")
    (tmp_path / "run" / "checkpoint").symlink_to(tmp_path / "kept")
    record(tmp_path / "run")
    assert (tmp_path / "kept" / "curves.png").read_text() == "precious"
    assert not any(path.is_symlink() for path in (tmp_path / "run").iterdir())


def modes(folder: Path) -> set[str]:
    return {stat.filemode(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_results_on_data_of_ones_own_are_for_their_owner_alone(tmp_path: Path) -> None:
    rng, before = np.random.default_rng(0), os.umask(0o022)
    try:
        for site in ("north", "south"):
            (tmp_path / "data" / site).mkdir(parents=True)
            np.savez(tmp_path / "data" / site / "data.npz", x=rng.normal(size=(20, 3)), y=np.arange(20) % 2)
        own = [f"data_dir={tmp_path / 'data'}", "experiment=own_data", "k=1", "num_rounds=1", "quiet=true"]
        assert main([*own, f"results_dir={tmp_path / 'own'}"]) == 0
        assert modes(tmp_path / "own") == {"drwx------", "-rw-------"}
        (run,) = (path.parent for path in tmp_path.glob("own/**/rounds.jsonl"))
        # A folder that was open stays so no longer; what simulated clients do is as open as the user has it.
        run.chmod(0o755)
        assert main([*own, f"results_dir={tmp_path / 'own'}"]) == 0
        assert stat.filemode(run.stat().st_mode) == "drwx------"
        record(tmp_path / "simulated")
        assert modes(tmp_path / "simulated") <= {"drwxr-xr-x", "-rw-r--r--"}
    finally:
        os.umask(before)


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
    [("rounds.jsonl", 2, "Round 2 is saved; "), ("round-000003.safetensors.part", 0, "Round 2 is saved; ")],
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


def test_a_log_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, _: str = "") -> None:
            raise OSError(errno.ENOSPC, FULL)

        flush = close = write

    monkeypatch.setattr(folders.RunLog, "_open", lambda _: Full())
    assert main([*settings("fedavg", "num_rounds=1"), f"results_dir={tmp_path}"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    folders.RunLog(tmp_path / "run.log").handle(logging.LogRecord("", 20, "", 0, "%d", ("no number",), None))
    assert "TypeError" in capsys.readouterr().err
