"""A function of a benchmark in a process of its own, which leaves its memory and its caches to no other."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def in_own_process(file: str, function: str, *arguments: Any) -> dict[str, float]:
    """Return what a benchmark's function finds; end the program with what it said where it fails.

    Parameters
    ----------
    file
        The benchmark's ``__file__``.
    function
        Name of a function of that file, which returns figures by name.
    arguments
        What it is given; numbers, texts, and lists of them.
    """
    module = f"benchmarks.{Path(file).stem}"
    code = f"import json; from {module} import {function}; print(json.dumps({function}(*{list(arguments)!r})))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    if told.returncode:
        sys.exit(told.stderr or told.stdout)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found
