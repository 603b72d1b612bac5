"""Objects that were given in Python in place of names: classes of a notebook, lambdas, module instances.

Such an object is pickled by value, and its import path is ``florets.task.given:<name>-<digest>``. The process in
which it was given has the bytes in memory; workers are handed them, and a run's folder keeps them in a file, which is
read only where `look_in` was asked to, which takes trust: to unpickle is to run code.
"""

import hashlib
import io
import json
import os
import pickle
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType, ModuleType
from typing import Any

FOLDER = "given"
"""Folder of the files, within a run's folder."""
SUFFIX = ".pickle"
"""Ending of their names."""

_VARIABLE = "FLORETS_GIVEN"
_NAME = re.compile(r"[A-Za-z_]\w*_[0-9a-f]{10}", re.ASCII)
_PLACES = ("__file__", "__path__")
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_REMEDY = "put it into a module, and name it as package.module:name"

_held: dict[str, bytes] = {}
_objects: dict[str, Any] = {}
_folders: list[Path] = []


def is_given(path: str) -> bool:
    """Return whether an import path leads to an object that was given in Python."""
    return path.partition(":")[0] == __name__


def hold(given: object, label: str) -> str:
    """Hold a copy of an object and return its import path; what is made of the same code has the same."""
    try:
        data, modules = _stored(given)
        digest = _digest(given)
    # Pickling calls methods of the objects, which may raise anything.
    except Exception as error:
        raise ValueError(f"cannot be pickled ({type(error).__name__}: {error}); {_REMEDY}") from error
    name = f"{re.sub(r'[^A-Za-z0-9_]', '', label).lstrip('0123456789') or 'object'}_{digest}"
    header = {"python": _PYTHON, "modules": modules}
    _held.setdefault(name, json.dumps(header).encode() + b"\n" + data)
    return f"{__name__}:{name}"


def files_of(paths: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the objects among import paths, by name; one that is not here is left out."""
    names = [path.partition(":")[2] for path in paths if is_given(path)]
    return {name: data for name in names if (data := _find(name)) is not None}


def files_in(texts: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the objects that texts such as `task.model=<path>` name."""
    names = re.findall(rf"{re.escape(__name__)}:({_NAME.pattern})\b", " ".join(texts))
    return files_of(f"{__name__}:{name}" for name in names)


def adopt(files: Mapping[str, bytes]) -> None:
    """Hold the objects that another process of this run has handed over."""
    _held.update(files)


def look_in(folder: Path) -> None:
    """Let objects be read from a folder: what is unpickled runs code, so that its author must be trusted."""
    if folder not in _folders:
        _folders.append(folder)


@contextmanager
def for_children(paths: Iterable[str]) -> Iterator[None]:
    """Let processes that this one starts find the objects among import paths, while the block runs."""
    with TemporaryDirectory(prefix="florets-given-") as folder:
        for name, data in files_of(paths).items():
            (Path(folder) / f"{name}{SUFFIX}").write_bytes(data)
        # This process may have been started so itself, and needs the folder that it was given again.
        before = os.environ.get(_VARIABLE, "")
        os.environ[_VARIABLE] = os.pathsep.join((str(folder), before))
        try:
            yield
        finally:
            os.environ[_VARIABLE] = before


def modules_of(path: str) -> list[str]:
    """Return the top-level modules that an object's code refers to; nothing is unpickled."""
    data = _find(path.partition(":")[2])
    return [] if data is None else list(_header(data)["modules"])


def read_again() -> None:
    """Unpickle objects again when they are next asked for: modules that they refer to have been edited."""
    _objects.clear()


def __getattr__(name: str) -> Any:
    if not _NAME.fullmatch(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _objects:
        _objects[name] = _loaded(name)
    return _objects[name]


def _loaded(name: str) -> Any:
    what = f"{name.rpartition('_')[0]} was given in Python"
    data = _find(name)
    if data is None:
        raise ValueError(
            f"{what}, and is neither in this process nor in the folder of a trusted run; give the object again, or "
            f"{_REMEDY}"
        )
    version = _header(data)["python"]
    if version != _PYTHON:
        # Bytecode of another version can end the process.
        raise ValueError(f"{what} by Python {version}, and this is {_PYTHON}; use that, or {_REMEDY}")
    try:
        return pickle.loads(data.partition(b"\n")[2])
    # It may be anybody's code.
    except Exception as error:
        raise ValueError(f"{what} and cannot be read here ({type(error).__name__}: {error}); {_REMEDY}") from error


def _find(name: str) -> bytes | None:
    if name in _held or not _NAME.fullmatch(name):
        return _held.get(name)
    folders = [*_folders, *(Path(folder) for folder in os.environ.get(_VARIABLE, "").split(os.pathsep) if folder)]
    for folder in folders:
        if (file := folder / f"{name}{SUFFIX}").is_file():
            return file.read_bytes()
    return None


def _header(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data.partition(b"\n")[0])
        if isinstance(header["python"], str) and all(isinstance(name, str) for name in header["modules"]):
            return dict(header)
    except (ValueError, KeyError, TypeError):
        pass
    return {"python": "an unknown version", "modules": []}


def _stored(given: object) -> tuple[bytes, list[str]]:
    """Return an object's pickle and the top-level modules that it refers to."""
    import cloudpickle

    modules: set[str] = set()

    class Stored(cloudpickle.CloudPickler):  # type: ignore[misc]  # its base is a class of C's or Python's
        def reducer_override(self, value: Any) -> Any:
            if value is MISSING:
                # Else each dataclass would have a sentinel of its own.
                return "MISSING"
            reduced = super().reducer_override(value)
            if isinstance(value, ModuleType):
                modules.add(value.__name__.partition(".")[0])
            elif reduced is NotImplemented and isinstance(getattr(value, "__module__", None), str):
                modules.add(value.__module__.partition(".")[0])
            return _untracked(reduced) if isinstance(value, type) else reduced

    file = io.BytesIO()
    Stored(file, protocol=5).dump(given)
    return file.getvalue(), sorted(modules)


def _digest(given: object) -> str:
    """Return ten hexadecimal digits of what an object is made of, the same in every process of a Python version."""
    import cloudpickle

    class Canonical(cloudpickle.CloudPickler):  # type: ignore[misc]  # as above
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, CodeType):
                return tuple, (_code(value),)
            reduced = super().reducer_override(value)
            if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) > 2:
                function, arguments, (attributes, *slots), *others = _untracked(reduced)
                attributes = {name: one for name, one in attributes.items() if name != "__firstlineno__"}
                return function, arguments, (attributes, *slots), *others
            if isinstance(value, FunctionType) and isinstance(reduced, tuple):
                function, (code, its_globals, *arguments), *others = reduced
                its_globals = {name: one for name, one in its_globals.items() if name not in _PLACES}
                return function, (code, its_globals, *arguments), *others
            return reduced

    file = io.BytesIO()
    Canonical(file, protocol=5).dump(given)
    return hashlib.sha256(_PYTHON.encode() + file.getvalue()).hexdigest()[:10]


def _untracked(reduced: Any) -> Any:
    """Return how cloudpickle builds a class, without the random number by which it knows the class again."""
    if not isinstance(reduced, tuple):
        return reduced
    arguments = tuple(
        None if isinstance(one, str) and re.fullmatch(r"[0-9a-f]{32}", one) else one for one in reduced[1]
    )
    return reduced[0], arguments, *reduced[2:]


def _code(code: CodeType) -> list[Any]:
    return [
        code.co_code,
        [_constant(value) for value in code.co_consts],
        *(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        *(code.co_name, code.co_qualname, code.co_exceptiontable),
    ]


def _constant(value: Any) -> Any:
    # The order of a set of texts differs from process to process.
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(map(repr, value))]
    return [_constant(one) for one in value] if isinstance(value, tuple) else value
