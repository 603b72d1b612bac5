"""Temporary folders that end with their process, those of killed processes at the next start."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = re.compile(r"florets-[a-z]+-([0-9]+)-[^-]+")


@contextmanager
def held_folder(purpose: str, above: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user can read, which goes with the block; first remove what was left over.

    `purpose` is a word in its name; it lies in `above`, by default the system's folder for temporary files.
    """
    above = Path(tempfile.gettempdir()) if above is None else above
    _remove_left_over(above)
    prefix = f"florets-{purpose}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=above, ignore_cleanup_errors=True) as folder:
        if os.name != "posix":
            yield Path(folder)
            return
        import fcntl  # not on Windows

        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield Path(folder)
        finally:
            os.close(held)


def _remove_left_over(above: Path) -> None:
    """Remove the folders of this user's processes that were killed: these are gone, and nobody holds the folders."""
    if os.name != "posix":
        return
    import fcntl

    for folder in above.glob("florets-*-*"):
        # It may go at any moment: another process does the same.
        with contextlib.suppress(OSError):
            name = _NAME.fullmatch(folder.name)
            if name is None or folder.is_symlink() or folder.stat().st_uid != os.getuid() or _is_there(int(name[1])):
                continue
            # The process may be in another container, whose numbers are not ours.
            held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
