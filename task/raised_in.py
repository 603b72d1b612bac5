"""The place where an exception was raised, which stands for the text of one that has none."""

import traceback
from pathlib import Path


def raised_in(error: BaseException) -> str:
    """Return function, file and line that raised an exception; empty where it was not raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"raised in {last.name} ({Path(last.filename).name}, line {last.lineno})"
