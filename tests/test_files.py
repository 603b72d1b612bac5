"""Files that runs leave: who can read them, links in their place, and temporary folders of killed processes."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.reports import folder as run_folder
from florets.task import temporary
from tests.results_examples import record


def test_folders_of_killed_runs_are_removed_and_no_others(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    numbers = (f"{done.pid}-abcdefg1", f"{done.pid}-abcdefg2", f"{os.getpid()}-abcdefg1")
    dead, held, alive = (tmp_path / f"florets-sweep-{number}" for number in numbers)
    copied, unmarked = (tmp_path / f"florets-sweep-{done.pid}-{end}" for end in ("mycopies", "abcdefg3"))
    others = [
        tmp_path / name
        for name in (f"florets-results-{done.pid}-finalist", f"florets-run-{done.pid}-final", "florets-sweep-own-x")
    ]
    for folder in (dead, held, alive, copied, unmarked, *others):
        (folder / "session").mkdir(parents=True)
    for folder in (dead, held, alive, *others):
        (folder / temporary._MARKER).write_text(folder.name)
    (copied / temporary._MARKER).write_text(dead.name)
    others += [copied, unmarked]
    # As that of a run in another container.
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        temporary._remove_left_over(tmp_path)
    finally:
        os.close(lock)
    assert sorted(tmp_path.iterdir()) == sorted([held, alive, *others])
    temporary._remove_left_over(tmp_path)
    assert not held.exists()
    # What a killed process leaves is known again.
    code = f"""import os, pathlib
from florets.task.temporary import held_folder
held = held_folder("run", pathlib.Path({str(tmp_path)!r}))
held.__enter__()
os._exit(0)"""
    subprocess.run([sys.executable, "-c", code], check=True)
    (left,) = set(tmp_path.iterdir()) - {alive, *others}
    with temporary.held_folder("run", tmp_path) as folder:
        assert folder.is_dir()
        assert not left.exists()


def test_a_link_in_the_place_of_a_file_is_never_followed(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "run"
    kept.mkdir()
    (kept / "file").write_text("precious")
    folder.mkdir()
    # A writer of whole files replaces a link, the one of an unfinished file among them; one that appends refuses it.
    for name in ("table.csv", "table.csv.part", "lines", "run.log"):
        (folder / name).symlink_to(kept / "file")
    run_folder.write_whole(folder / "table.csv", "new")
    assert not (folder / "table.csv").is_symlink()
    with pytest.raises(
        run_folder.WriteFailed, match=r"lines cannot be written: it is a symbolic link, and none is followed"
    ):
        run_folder.append_lines(folder / "lines", "new")
    with pytest.raises(run_folder.WriteFailed, match=r"run\.log cannot be written: it is a symbolic link"):
        run_folder.RunLog(folder / "run.log")
    (folder / "checkpoint").symlink_to(kept)
    with pytest.raises(run_folder.WriteFailed, match="checkpoint cannot be written: it is a symbolic link"):
        run_folder.make_inside(folder / "checkpoint")
    # A linked marker makes no folder a run's.
    (folder / run_folder.MARKER).symlink_to(kept / "file")
    with pytest.raises(ValueError, match="is not an earlier run's folder"):
        run_folder.open_folder(folder)
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
