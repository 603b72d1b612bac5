"""A new folder with a result: written aside and renamed, so that a failure leaves nothing of it."""

import secrets
import shutil
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
        raise ConfigError([f"to={target}: cannot be written ({error.strerror or error})."]) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
