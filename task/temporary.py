"""Temporary folders that end with their process, those of killed processes at the next start."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

Purpose = Literal["deploy", "given", "run", "superlink", "sweep"]

# `tempfile` ends a name with eight characters.
_NAME = re.compile(rf"florets-(?:{'|'.join(get_args(Purpose))})-([0-9]+)-[a-z0-9_]{{8}}")
_MARKER = ".florets-temporary"
"""File in each folder that holds the folder's name: no folder of a user's own is taken for one of these."""


@contextmanager
def held_folder(purpose: Purpose, above: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user can read, which goes with the block; first remove what was left over.

    `purpose` is a word in its name; it lies in `above`, by default the system's folder for temporary files.
    """
    above = Path(tempfile.gettempdir()) if above is None else above
    _remove_left_over(above)
    prefix = f"florets-{purpose}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=above, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        held = lock(folder, shared=True)
        try:
            # Once it is locked: until then a process in another container could take it for one that was left over.
            (folder / _MARKER).write_text(folder.name, encoding="utf-8")
            yield folder
        finally:
            unlock(held)


def lock(folder: Path, shared: bool = False) -> int | None:
    """Lock a folder without waiting and return its handle; None where the system or its file system has no locks.

    Raises
    ------
    BlockingIOError
        If another process holds it.
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


def _remove_left_over(above: Path) -> None:
    """Remove the folders of this user's processes that were killed: these are gone, and nobody holds the folders."""
    if os.name != "posix":
        return
    for folder in above.glob("florets-*-*"):
        # It may go at any moment: another process does the same.
        with contextlib.suppress(OSError):
            name = _NAME.fullmatch(folder.name)
            if name is None or not _is_ours(folder) or _is_there(int(name[1])):
                continue
            # The process may be in another container, whose numbers are not ours.
            if (held := lock(folder)) is not None:
                try:
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    unlock(held)


def _is_ours(folder: Path) -> bool:
    marker = folder / _MARKER
    if any(path.is_symlink() or path.stat().st_uid != os.getuid() for path in (folder, marker)):
        return False
    return marker.read_bytes() == folder.name.encode()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
