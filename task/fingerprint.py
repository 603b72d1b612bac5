"""A hash of the code that clients run: it tells when client and server come from different copies."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

CLIENT_FOLDERS = ("client_app", "task")


@cache
def fingerprint(folders: tuple[Path, ...]) -> str:
    """Return 16 hexadecimal digits over the Python files of `folders`; the folders' place does not matter."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in _python_files(folder):
            digest.update(file.relative_to(folder.parent).as_posix().encode() + b"\0")
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def project_fingerprint() -> str:
    """Return the fingerprint of the copy of the project that this process imported."""
    root = Path(__file__).parents[1]
    return fingerprint(tuple(root / name for name in CLIENT_FOLDERS))


def _python_files(folder: Path) -> Iterable[Path]:
    return sorted(file for file in folder.rglob("*.py") if "__pycache__" not in file.parts)
