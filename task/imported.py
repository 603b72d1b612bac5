"""Functions of an author's: their import by path, the check of their parameters, and where one of them failed."""

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

Function = Callable[..., Any]
T = TypeVar("T")
F = TypeVar("F", bound=Function)

# Kept for the life of the process: torch forgets an operator when its library object goes.
_libraries: list[Any] = []


def with_torchvision(call: Callable[[], T]) -> T:
    """Call a function that may import torchvision; operators that the installed torch lacks are declared."""
    try:
        return call()
    except Exception as error:  # whoever called torchvision may have wrapped its RuntimeError
        cause: BaseException | None = error
        while cause is not None and "operator torchvision::nms does not exist" not in str(cause):
            cause = cause.__cause__
        if _libraries or cause is None:
            raise

    import torch

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]  # torch's own
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]  # torch's own
    _libraries.append(library)
    with warnings.catch_warnings():
        # The same mismatch makes torchvision warn that its image decoders are missing: none is used here.
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        return call()


_VARIABLE = "FLORETS_CALLERS_FOLDER"


def import_from(folder: Path) -> None:
    """Let this process, and those that it starts, import modules in `folder`, after the installed ones."""
    os.environ[_VARIABLE] = str(folder)
    import_as_caller_did()


def import_as_caller_did() -> None:
    """Let modules in the caller's folder be imported, where `florets` has started this process elsewhere."""
    folder = os.environ.get(_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)


def module_of(what: str, path: str) -> str:
    """Return the module of an import path; `what` names the path in errors."""
    module, colon, function = path.partition(":")
    if not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError(f"{what}: the form is package.module:function.")
    return module


def imported(what: str, path: str) -> Function:
    """Return the function that an import path leads to; its module is imported."""
    module_name, function_name = module_of(what, path), path.partition(":")[2]
    try:
        module = with_torchvision(lambda: importlib.import_module(module_name))
    except Exception as error:  # a module of the user's own may raise anything while it is imported
        raise ValueError(
            f"{what}: module {module_name!r} cannot be imported here ({type(error).__name__}: {error}). "
            f"The form is package.module:function, with the package on Python's path."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"{what}: module {module_name!r} has no function {function_name!r}.")
    return function  # type: ignore[no-any-return]  # getattr knows no type; callable() was checked


def imported_for(what: str, path: str, given: Sequence[str]) -> Function:
    """Return as `imported` a function that can be called with as many arguments as `given` names."""
    function = imported(what, path)
    try:
        inspect.signature(function).bind(*given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what}: it cannot be called as f({', '.join(given)}): {error}.") from None
    return function


def other_parameters(
    what: str, function: Function, given: Sequence[str], options: bool = True
) -> list[inspect.Parameter]:
    """Return the parameters of a function other than `given`, which it must have under these very names.

    One that happens to take as many was written for something else: ``shutil.rmtree`` would delete the data folder.
    """
    expected = f"f({', '.join([*given, *(['**options'] if options else [])])})"
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        # Functions in C may have none.
        raise ValueError(f"{what}: its parameters cannot be read; write a function {expected}.") from None
    by_keyword = {p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if missing := [name for name in given if name not in by_keyword]:
        raise ValueError(f"{what}: it has no parameter {missing[0]!r} by keyword; its signature must be {expected}.")
    others = [parameter for name, parameter in parameters.items() if name not in given]
    required = [parameter.name for parameter in others if parameter.default is parameter.empty]
    if required and not options:
        raise ValueError(f"{what}: it takes {required[0]!r} as well; its signature must be {expected}.")
    return others


CLIENT = "client"
"""Name of a handler's one parameter."""


def handler(function: F) -> F:
    """Declare what clients do when a strategy asks them by it: ``f(client)``, which returns ``client.reply(...)``.

    Raises
    ------
    ValueError
        If its one parameter has another name, or it needs more.
    """
    check_handler(f"handler {function.__qualname__}", function)
    return function


def check_handler(what: str, function: Function) -> None:
    """Raise ValueError where a function is no handler; `what` names it."""
    other_parameters(what, function, [CLIENT], options=False)


_OURS = __name__.partition(".")[0]
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def raised_in(error: BaseException, in_own_code: bool = False) -> str:
    """Return function, file and line that raised an exception, the innermost or that in the user's own code."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [(frame, line) for frame, line in frames if not in_own_code or _is_own(frame)]
    if not found:
        return ""
    frame, line = found[-1]
    return f"raised in {frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}, line {line})"


def _is_own(frame: FrameType) -> bool:
    # A command's own entry is no function.
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    is_theirs = module.partition(".")[0] == _OURS or code.co_filename.startswith((*_LIBRARIES, "<"))
    return not is_theirs and code.co_name != "<module>"
