"""A hash of the code that clients run: it tells when client and server come from different copies."""

import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

CLIENT_FOLDERS = ("client_app", "task")


@cache
def fingerprint(folders: tuple[Path, ...]) -> str:
    """Return 16 hexadecimal digits over the Python files of `folders` (or files); their place does not matter."""
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


@cache
def code_fingerprint(handlers: tuple[str, ...] = ()) -> str:
    """Return the fingerprint of the project and of the packages of a strategy's own client handlers.

    Parameters
    ----------
    handlers
        Import paths ``package.module:function``; nothing is imported. Of a package all of its files count, of a lone
        module that file.

    Raises
    ------
    ValueError
        If a package is not installed here.
    """
    packages = sorted({handler.partition(":")[0].split(".")[0] for handler in handlers})
    if not packages:
        return project_fingerprint()
    digest = hashlib.sha256(project_fingerprint().encode())
    for package in packages:
        digest.update(fingerprint(_sources(package)).encode())
    return digest.hexdigest()[:16]


def _sources(package: str) -> tuple[Path, ...]:
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        return tuple(Path(folder) for folder in spec.submodule_search_locations)
    if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
        return (Path(spec.origin),)
    raise ValueError(f"package {package!r} of the strategy's client handlers is not installed here")


def _python_files(folder: Path) -> Iterable[Path]:
    if folder.is_file():
        return [folder]
    return sorted(file for file in folder.rglob("*.py") if "__pycache__" not in file.parts)
