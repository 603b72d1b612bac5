"""Hashes of code: client and server compare that of clients, and a run records that of modules of its author's."""

import ast
import contextlib
import hashlib
import importlib.util
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from florets.task import given

CLIENT_FILES = ("client_app", "task", "strategies/*/client.py", "strategies/*/messages.py", "zoo")

_OURS = __name__.partition(".")[0]
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_PACKAGES = {"site-packages", "dist-packages"}
_DIGITS = 16


@cache
def fingerprint(folders: tuple[Path, ...]) -> str:
    """Return 16 hexadecimal digits over the Python files of `folders` (or files); their place does not matter."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in _python_files(folder):
            digest.update(file.relative_to(folder.parent).as_posix().encode() + b"\0")
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGITS]


@cache
def project_fingerprint() -> str:
    """Return the fingerprint of the copy of the project that this process imported."""
    root = Path(__file__).parents[1]
    return fingerprint(tuple(path for name in CLIENT_FILES for path in sorted(root.glob(name))))


@cache
def code_fingerprint(handlers: tuple[str, ...] = ()) -> str:
    """Return the fingerprint of the project and of the packages of a strategy's own client handlers, import paths."""
    packages = sorted({_package(handler) for handler in handlers})
    if not packages:
        return project_fingerprint()
    digest = hashlib.sha256(project_fingerprint().encode())
    for package in packages:
        if not (sources := _sources(package)):
            raise ValueError(f"package {package!r} of the strategy's client handlers is not installed here")
        digest.update(fingerprint(sources).encode())
    return digest.hexdigest()[:_DIGITS]


def file_hashes(paths: Iterable[str]) -> dict[str, str]:
    """Return the hash of every file of one's own code that import paths lead to, by name; nothing is imported.

    Of a package all of its files count, of a lone module that file, and then all that these import and what that
    imports, but neither what is installed nor this project.
    """
    return {name: digest for found in _found(paths) for name, digest in found.hashes.items()}


def own_files(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the hashes of the files of one's own code that import paths lead to, by package; see `file_hashes`."""
    return {found.package: found.hashes for found in _found(paths)}


def importers(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return, of each package that import paths lead to, which packages among them import it."""
    by: dict[str, set[str]] = {}
    for found in _found(paths):
        for name in found.imports:
            by.setdefault(name, set()).add(found.package)
    return by


def forget_compiled(module: ModuleType) -> None:
    """Remove the file with a module's compiled code, so that its source is read when it is next imported."""
    if cached := getattr(module, "__cached__", None):
        with contextlib.suppress(OSError):
            Path(cached).unlink(missing_ok=True)


def forget() -> None:
    """Read the files of packages again whose fingerprint is next asked for."""
    fingerprint.cache_clear()
    code_fingerprint.cache_clear()


class _Found(NamedTuple):
    """A package or a lone module: the hashes of its files, and the packages that they import."""

    package: str
    hashes: dict[str, str]
    imports: set[str]


def _found(paths: Iterable[str]) -> Iterator[_Found]:
    """Yield the packages of one's own that import paths lead to, and those that these import."""
    named = (given.modules_of(path) if given.is_given(path) else [path] for path in paths)
    waiting = sorted({_package(name) for names in named for name in names})
    seen = {_OURS}
    while waiting:
        package = waiting.pop(0)
        sources = _sources(package)
        if package in seen or not sources or any(map(_is_installed, sources)):
            continue
        seen.add(package)
        found = _Found(package, {}, set())
        for source in sources:
            for file in _python_files(source):
                status = file.stat()
                digest, imports = _read(file, status.st_mtime_ns, status.st_size)
                found.hashes[file.relative_to(source.parent).as_posix()] = digest
                found.imports.update(imports)
        waiting += sorted(found.imports)
        yield found


# A table asks again for each of its cells.
@lru_cache(maxsize=8192)
def _read(file: Path, _changed: int, _size: int) -> tuple[str, frozenset[str]]:
    """Return the hash of a file and the top-level packages that it imports, be it inside a function."""
    content, found = file.read_bytes(), set[str]()
    # What cannot be read is reported where it is imported, and odd literals are not this reader's affair.
    with contextlib.suppress(SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                found |= {_package(alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(_package(node.module))
    return hashlib.sha256(content).hexdigest()[:_DIGITS], frozenset(found)


def _package(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def _sources(package: str) -> tuple[Path, ...]:
    """Return the folders of a package or the file of a lone module; none where there is no source of it."""
    spec = None
    # Of a module that runs as a script nothing is known.
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        return tuple(Path(folder) for folder in spec.submodule_search_locations)
    if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
        return (Path(spec.origin),)
    return ()


def _is_installed(source: Path) -> bool:
    return not _PACKAGES.isdisjoint(source.parts) or source.resolve().is_relative_to(_STANDARD_LIBRARY)


def _python_files(folder: Path) -> Iterable[Path]:
    if folder.is_file():
        return [folder]
    return sorted(folder.rglob("*.py"))
