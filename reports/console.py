"""Console output: the project's own lines, and its log in a Flower process."""

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import TextIO

log = logging.getLogger("florets")


def log_to_console() -> None:
    """Show the project's log lines on standard error, once; `flwr run --stream` passes them on."""
    if any(handler.name == "florets-console" for handler in log.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.name = "florets-console"
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: 1 round, 2 rounds."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return names in words; of more than `most` the first, and how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _scaled(value: float, units: Mapping[str, float], smallest: str) -> str:
    # Rounded first: 999.6 kB in three digits is 1 MB, not 1000 kB.
    rounded = float(f"{value:.3g}")
    unit, factor = next(((unit, factor) for unit, factor in units.items() if rounded >= factor), (smallest, 1.0))
    return f"{rounded / factor:g} {unit}".rstrip()


def size(num_bytes: float) -> str:
    """Return a number of bytes in the unit that suits it, decimal as networks count."""
    return _scaled(num_bytes, {"GB": 1e9, "MB": 1e6, "kB": 1e3}, "B")


def number(count: float) -> str:
    """Return a count in three digits, with the word that suits it."""
    return _scaled(count, {"billion": 1e9, "million": 1e6, "thousand": 1e3}, "")


def duration(seconds: float) -> str:
    """Return a time in the units that suit it."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def replace_unknown_letters() -> None:
    """Let this process print `?` where a terminal's or a file's encoding lacks a character, in place of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line at once, by default on standard output.

    Where the reader has gone (``florets ... | head``, a closed terminal), the line is lost, and the run goes on.
    """
    stream = sys.stdout if stream is None else stream
    # In a process that joblib starts, or a notebook, no error handler is set.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
    except OSError as error:
        # A terminal that is closed answers EIO.
        if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:
            raise
        # Python writes at its end what is left, and would fail then: it goes nowhere. A stream may have no file.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
