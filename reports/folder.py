"""The folder of a run: made or taken up again, held against other processes, and written to the disk."""

import contextlib
import errno
import json
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from florets.conf.problems import ConfigError
from florets.reports.summary import RoundLine, read_line

FINISHED = "report.html"
"""Last file that a run writes: with it the run has ended."""
MARKER = "rounds.jsonl"
"""Every run writes this file first: a folder with it is an earlier run's, and may be replaced."""

STOP = "stop"
"""While a run's folder holds this file, the run ends after its current round; it removes the file."""


def open_folder(folder: Path) -> bool:
    """Empty the folder of a new run, but for the marker, and say whether an earlier run was there."""
    earlier = (folder / MARKER).is_file() and not (folder / MARKER).is_symlink()
    others = [entry for entry in folder.iterdir() if not earlier or entry.name != MARKER]
    if others and not earlier:
        raise ValueError(
            f"the results folder {folder} holds files but no {MARKER}, so it is not an earlier run's folder "
            "and is not replaced. Move its files, or set results_dir to another folder."
        )
    # The marker stays throughout: killed here, the rest is still known as a run's and can be replaced.
    for entry in others:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    with naming(folder / MARKER), open(folder / MARKER, "wb", opener=no_link):
        pass
    return earlier


def reopen_folder(folder: Path, rounds: int) -> list[RoundLine]:
    """Make an interrupted run's folder what it was after `rounds` rounds, and return those rounds' lines."""
    lines: list[RoundLine] = []
    # Lost with the power, or edited: nothing behind the first line that cannot be read is of use.
    with contextlib.suppress(ValueError, OSError):
        for text in (folder / MARKER).read_text(encoding="utf-8").splitlines()[:rounds]:
            lines.append(read_line(text))
    if [line["round"] for line in lines] != list(range(1, rounds + 1)):
        raise ValueError(
            f"{folder / MARKER} does not hold rounds 1 to {rounds}, after which the run is to go on; restore the "
            f"file, or run the experiment again"
        )
    write_whole(folder / MARKER, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    # What was written at the end of the run is no longer its end.
    for name in (FINISHED, "summary.json", STOP):
        (folder / name).unlink(missing_ok=True)
    return lines


class WriteFailed(OSError):
    """A file of a run could not be written, as when the disk is full; the text names it and says why."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let a failure to write say which file it was: the system does so only where a file cannot be opened."""
    try:
        yield
    except WriteFailed:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ELOOP:
            reason = "it is a symbolic link, and none is followed; remove it"
        raise WriteFailed(f"{error.filename or path} cannot be written: {reason}") from None


def no_link(path: str, flags: int) -> int:
    """Open a file as `open` does, but for a symbolic link in its place: in a shared folder it may be anybody's."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def make_inside(folder: Path) -> None:
    """Make a folder within a run's folder where it is missing."""
    with naming(folder):
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))


@contextlib.contextmanager
def private(wanted: bool = True) -> Iterator[None]:
    """Let nobody but this user read the files and folders that this process makes in the block, where `wanted`."""
    before = os.umask(0o077) if wanted else None
    try:
        yield
    finally:
        if before is not None:
            os.umask(before)


@contextlib.contextmanager
def whole_file(path: Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """Open a file for writing aside, and rename it: a reader sees either the old file or the whole new one."""
    aside = path.with_name(f"{path.name}.part")
    with naming(path):
        try:
            # What a killed process has left there, or a link that another user has.
            aside.unlink(missing_ok=True)
            with aside.open("xb") if mode == "wb" else aside.open("x", newline="", encoding="utf-8") as file:
                yield file
                _to_disk(file)
            aside.replace(path)
        except OSError:
            # On a full disk it holds the room that the next try needs.
            aside.unlink(missing_ok=True)
            raise


def write_whole(path: Path, text: str) -> None:
    """Write a text file as `whole_file` does."""
    with whole_file(path) as file:
        file.write(text)


def append_lines(path: Path, text: str) -> None:
    """Append whole lines, on the disk when this returns: a killed run has no half of a round."""
    with naming(path), open(path, "a", newline="", encoding="utf-8", opener=no_link) as file:
        file.write(text)
        _to_disk(file)


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


class RunLog(logging.FileHandler):
    """The log file of a run; where it cannot be written any more, the run goes on."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=no_link)

    def handleError(self, record: logging.LogRecord) -> None:
        """Lose a line that cannot be written: on a full disk the run's other files end it, and say why."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class FolderBusy(ValueError):
    """Another process holds a run's folder."""


_WAITS = (0.02,) * 10
"""Seconds between the attempts to lock a folder: `is_held` holds it for an instant."""


class FolderLock(contextlib.AbstractContextManager["FolderLock"]):
    """Hold a run's folder, which is made where it is missing, until `release`, or the end of the block or process.

    The folder itself is locked: no file shows, and none stays behind. Systems that cannot do that hold nothing.
    """

    def __init__(self, folder: Path) -> None:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise ValueError(f"the results folder {folder} is a file or a link; move it, or set results_dir.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ValueError(
                f"the results folder {folder} cannot be made ({reason}); name another results_dir."
            ) from None
        for wait in (*_WAITS, None):
            try:
                self._handle = lock(folder)
                return
            except BlockingIOError:
                if wait is None:
                    raise FolderBusy(
                        f"another process writes to {folder}; end it first, or set results_dir."
                    ) from None
                time.sleep(wait)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let go of the folder; a second call does nothing."""
        handle, self._handle = self._handle, None
        unlock(handle)


def lock(folder: Path, shared: bool = False) -> int | None:
    """Lock a folder without waiting and return its handle; None where the system or its file system has no locks.

    BlockingIOError if another process holds it.
    """
    handle = None
    try:
        import fcntl  # not on Windows

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        unlock(handle)
        raise
    except (ImportError, OSError):
        unlock(handle)
        return None
    return handle


def unlock(handle: int | None) -> None:
    """Undo `lock`."""
    if handle is not None:
        # The lock goes with the last handle, and a child that was forked has one: it is undone as well.
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Return whether a process is at work in a run's folder; False on systems that cannot tell."""
    try:
        unlock(lock(folder, shared=True))
    except BlockingIOError:
        return True
    return False


def write_arrays(
    file: IO[bytes], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by their names, and texts with them, as one safetensors file."""
    # safetensors writes an array's memory as it lies there, so it must lie in row order.
    rows = {name: np.require(values, requirements="C") for name, values in arrays.items()}
    packed = safetensors.numpy.save(rows, dict(metadata) if metadata else None)
    # It takes the texts in the order of a hash table with a new seed in each process: they are sorted here.
    end = 8 + int.from_bytes(packed[:8], "little")
    header = json.loads(packed[8:end])
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    # No copy: a checkpoint can fill a good part of the memory.
    file.write(memoryview(packed)[end:])


def refuse_taken(target: Path) -> None:
    """Raise ConfigError where the folder that `to` names holds something already."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"to={target}: is a file or a link; name a new folder.")
    if target.is_dir() and any(target.iterdir()):
        raise ConfigError(f"to={target}: is not empty, and nothing in it is overwritten; name a new folder.")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a folder aside, which gets the name when the block has ended."""
    # Unlike a folder of `tempfile`, it has the permissions that the user's own have.
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        aside.mkdir(parents=True)
        yield aside
        if target.is_dir():
            # An empty one, which not every system replaces.
            target.rmdir()
        aside.replace(target)
    except OSError as error:
        raise ConfigError(f"to={target}: cannot be written ({error.strerror or error}).") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
