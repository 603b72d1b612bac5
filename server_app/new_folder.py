"""A new folder with a result: written aside and renamed, so that a failure leaves nothing of it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from florets.conf.problems import ConfigError


def refuse_taken(target: Path) -> None:
    """Raise ConfigError where the folder that `to` names holds something already."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError([f"to={target}: is a file or a link; name a new folder."])
    if target.is_dir() and any(target.iterdir()):
        raise ConfigError([f"to={target}: is not empty, and nothing in it is overwritten; name a new folder."])


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a folder aside, which gets the name when the block has ended.

    Raises
    ------
    ConfigError
        If it cannot be written.
    """
    aside = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        # A temporary folder is its owner's alone.
        aside.chmod(0o755)
        yield aside
        aside.replace(target)
    except OSError as error:
        raise ConfigError([f"to={target}: cannot be written ({error.strerror or error})."]) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
