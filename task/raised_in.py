"""The place where an exception was raised: in an author's own code, or for one that has no text."""

import sysconfig
import traceback
from pathlib import Path
from types import FrameType

_OURS = __name__.partition(".")[0]
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def raised_in(error: BaseException, in_own_code: bool = False) -> str:
    """Return function, file and line that raised an exception; empty where it was not raised.

    `in_own_code`: the innermost that are neither a library's nor the project's; empty where there are none.
    """
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
