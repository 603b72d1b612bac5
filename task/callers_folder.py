"""The folder in which `florets` was called: functions, strategies and handlers of the user's own are found there."""

import os
import sys
from pathlib import Path

_VARIABLE = "FLORETS_CALLERS_FOLDER"


def import_from(folder: Path) -> None:
    """Let this process, and those that it starts, import modules in `folder`.

    It comes last, so that they hide none of the installed ones.
    """
    os.environ[_VARIABLE] = str(folder)
    _append(str(folder))


def import_as_caller_did() -> None:
    """Let modules in the caller's folder be imported, where `florets` has started this process elsewhere."""
    if folder := os.environ.get(_VARIABLE):
        _append(folder)


def _append(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)
