"""The log of a node, a JSON line for each message of what left or why it was refused; and a policy's counts."""

import contextlib
import datetime
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from florets.task.wire.leaving import Left

LOG_FILE = "messages.jsonl"
SERVER = "FLORETS_SUPERLINK"
"""Environment variable in which `florets node start` passes on the address of the server."""
MOST_BYTES = 10 * 2**20
"""Size at which a new file is begun."""
MOST_FILES = 10
"""Files that are kept: the log, and `messages.jsonl.1` to `.9`, the latest first."""
_LONGEST = 1_000
"""Characters of a text that are kept: a server that chooses it must not fill the log with few messages."""
_SPENT = "spent.json"
ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"


@dataclass(frozen=True)
class Logged:
    """One message: what came, and what was answered."""

    time: float
    """When its answer was ready, in seconds since 1970."""
    run: int
    round: int
    kind: str
    client: str = ""
    server: str = ""
    received: int = 0
    answer: str = ANSWERED
    reason: str = ""
    seconds: float = 0.0
    left: Mapping[str, Left] = field(default_factory=dict)
    """Entries and bytes of the answer by name."""


def default_folder(start: Path | None = None) -> Path:
    """Return the folder of a node's log where its config names none: in Flower's own, which it can write to."""
    home = os.environ.get("FLWR_HOME") or Path.home() / ".flwr"
    return (Path(home) if start is None else start) / "florets"


class NodeLog:
    """The log in a folder, readable by its owner alone, without links; OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, line: Logged) -> None:
        """Write a line; the file that has become too large is put aside before."""
        values = asdict(line)
        values["time"] = _iso(line.time)
        values["seconds"] = round(line.seconds, 3)
        values = {key: value[:_LONGEST] if isinstance(value, str) else value for key, value in values.items()}
        text = json.dumps({key: value for key, value in values.items() if value not in ("", {})}) + "\n"
        path = self.folder / LOG_FILE
        with self._locked():
            if path.is_file() and path.stat().st_size + len(text) > MOST_BYTES:
                for number in range(MOST_FILES - 1, 0, -1):
                    before = path if number == 1 else path.with_name(f"{LOG_FILE}.{number - 1}")
                    if before.exists():
                        before.replace(path.with_name(f"{LOG_FILE}.{number}"))
            with open(path, "ab", opener=_private) as file:
                file.write(text.encode())

    def spend(self, spent: float, most: float) -> bool:
        """Count what is spent of a privacy budget for good; return whether it is left, and count nothing else."""
        path = self.folder / _SPENT
        with self._locked():
            with contextlib.suppress(FileNotFoundError):
                spent += json.loads(path.read_text(encoding="utf-8"))["spent"]
            if spent > most:
                return False
            aside = path.with_suffix(".part")
            aside.unlink(missing_ok=True)
            with open(aside, "w", encoding="utf-8", opener=_private) as file:
                json.dump({"spent": spent}, file)
            aside.replace(path)
        return True

    def lines(self, run: int | None = None) -> Iterator[Logged]:
        """Yield the lines, the oldest first; one that a crash cut short is left out."""
        names = [f"{LOG_FILE}.{number}" for number in range(MOST_FILES - 1, 0, -1)]
        for path in [self.folder / name for name in (*names, LOG_FILE)]:
            if not path.is_file():
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                for text in file:
                    with contextlib.suppress(ValueError, TypeError, KeyError):
                        values = json.loads(text)
                        values["time"] = datetime.datetime.fromisoformat(values["time"]).timestamp()
                        values["left"] = {name: Left(**left) for name, left in values.get("left", {}).items()}
                        line = Logged(**values)
                        if run in (None, line.run):
                            yield line

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / ".lock", "ab", opener=_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
