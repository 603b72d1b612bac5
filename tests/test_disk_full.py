"""A disk that is full ends a run with the file's name and the command that goes on, and spoils nothing."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from florets.commands.main import main
from florets.reports import folder as folders
from florets.reports.folder import WriteFailed, naming, whole_file, write_whole
from florets.server_app.checkpoint import Checkpoints
from tests.test_resume import ROOT, results, run_folder, settings

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
        ("summary.json.part", 0, "Round 3 is saved; "),
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


def test_a_disk_that_is_full_at_the_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(file: IO[Any]) -> None:
        raise OSError(errno.ENOSPC, FULL)

    monkeypatch.setattr(folders, "_to_disk", full)
    assert main([*settings("fedavg"), f"results_dir={tmp_path}"]) == 1
    told = capsys.readouterr().err
    assert told == f"florets: the run failed: {run_folder(tmp_path)}/config.yaml cannot be written: {FULL}\n"


def half_written(path: Path) -> None:
    with whole_file(path) as file:
        file.write("half")
        raise OSError(errno.ENOSPC, FULL)


def test_what_was_there_stays_where_the_next_has_no_room(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "before")
    with pytest.raises(WriteFailed, match=r"a\.txt cannot be written: No space"):
        half_written(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    # A file that cannot even be opened is named by the system.
    with pytest.raises(WriteFailed, match=r"none/b\.txt cannot be written: No such file"), naming(tmp_path):
        (tmp_path / "none" / "b.txt").write_text("")


@pytest.mark.slow
def test_on_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """In a namespace of its own the command gets a disk of two checkpoints and a half, and then a larger one."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this system lets no user mount a disk")
    florets = f'"{sys.executable}" -m florets'
    script = f"""
        mount -t tmpfs -o size=800k none {tmp_path}
        {florets} strategy=fedavg num_rounds=3 task.model_options.hidden=[1024] results_dir={tmp_path} && exit 9
        set -e
        mount -o remount,size=100m {tmp_path}
        {florets} quiet=true resume=$(dirname $(find {tmp_path} -name config.yaml))
    """
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        rf"^florets: the run failed: {tmp_path}/.* cannot be written: {FULL}\. (.*)$", done.stderr, re.M
    )
    assert found is not None, done.stderr
    assert found[1].startswith("Round 2 is saved; once the cause is gone, go on with: florets resume=")
    assert "Traceback" not in done.stderr
    assert "3 rounds in" in done.stdout
