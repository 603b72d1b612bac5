"""`florets node`: what a node's owner does: start it, approve an app's version, read the log of what left.

florets node start [approved=<file>] <options of flower-supernode>
  Start a SuperNode that runs only approved versions of an app: the SHA-256 of
  the bundle that the server sends is compared with the file before any of its
  code runs. Without the file every app runs, and the first line says so.

florets node approve <bundle.fab or hash> [approved=<file>]
  Approve a bundle, and print which of its files differ from those of the bundle
  that was approved last. A hash is that of a bundle that this node has refused,
  and kept for this.

florets node log [<folder>] [last=<n>]
  Show the log of messages: what left this node, what was refused, and sums by
  run.

  approved=   the file of approvals; default: approved.json in the present folder,
              a kit's
  <folder>    a kit, or the folder of the log (log-folder in node.toml);
              default: the present one
  last=       so many messages; default: 20
"""

import datetime
import hashlib
import io
import json
import logging
import os
import re
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError, did_you_mean
from florets.engines.flower_processes import past_proxies
from florets.reports.console import counted, say, size
from florets.task import node_log
from florets.task.node_log import Logged, NodeLog

HELP = str(__doc__).partition("\n\n")[2].rstrip()

APPROVED = "approved.json"
_REFUSED = "refused"
_MOST_REFUSED = 5
_MOST_UNPACKED = 2**30
_HASH = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger("florets")


def command(arguments: Sequence[str]) -> int:
    """Run `florets node` where only a node's packages are installed; see `florets.commands.main.main`."""
    if not arguments or {"-h", "--help"} & set(arguments[:2]):
        print(HELP)
        return 0
    try:
        return main(arguments)
    except ConfigError as error:
        say(f"florets: {error}", sys.stderr)
        return 2


def main(arguments: Sequence[str]) -> int:
    """Do what the first word says, and return the exit code."""
    words: Mapping[str, Callable[[Sequence[str]], int]] = {"start": _start, "approve": _approve, "log": _show}
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if word not in words:
        raise ConfigError(f"florets node {word}: is none of {', '.join(words)}.{did_you_mean(word, words)}")
    return words[word](rest)


def _start(arguments: Sequence[str]) -> int:
    """Run a SuperNode in this process; it returns only where that ends."""
    from florets.task.wire.flower import guard_bundles, run_supernode

    options = [text for text in arguments if not text.startswith("approved=")]
    file = _file(dict(text.split("=", 1) for text in arguments if text not in options))
    server = options[options.index("--superlink") + 1] if "--superlink" in options[:-1] else ""
    os.environ[node_log.SERVER] = server
    # The node's processes talk to each other on this machine; the server may be behind a proxy.
    os.environ.update(past_proxies(os.environ))

    known = len(_approvals(file)) if file.exists() else None

    def refuses(content: bytes, run: int) -> str | None:
        digest = hashlib.sha256(content).hexdigest()
        try:
            # Read anew for each run: an approval takes effect at once. A file that has gone approves nothing.
            if (known is None and not file.exists()) or digest in {one["sha256"] for one in _approvals(file)}:
                return None
        except ConfigError as error:
            say(f"florets: {error}", sys.stderr)
        reason = (
            f"this node's owner has not approved this version of the app; on the node: florets node approve {digest}"
        )
        say(f"Refused a bundle before its code ran: {reason}", sys.stderr)
        kept = node_log.default_folder() / _REFUSED
        try:
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            (kept / f"{digest}.fab").write_bytes(content)
            for old in sorted(kept.glob("*.fab"), key=lambda path: path.stat().st_mtime)[:-_MOST_REFUSED]:
                old.unlink()
            NodeLog(kept.parent).append(
                Logged(time.time(), run, 0, "bundle", "", server, len(content), node_log.REFUSED, reason)
            )
        except OSError as error:
            say(f"{kept.parent}: cannot be written ({error.strerror}); the bundle is not kept.", sys.stderr)
        return reason

    say(
        f"{file}: no such file, so this node runs every app that the server sends; florets node approve creates it."
        if known is None
        else f"{file}: {counted(known, 'approved version')} of an app; others are refused before their code runs.",
        sys.stderr,
    )
    guard_bundles(refuses)
    run_supernode(options)
    return 0


def _approve(arguments: Sequence[str]) -> int:
    keys, rest = _read("approve", arguments, ("approved",))
    if len(rest) != 1:
        raise ConfigError(
            f"florets node approve: needs one bundle or hash, and was given {', '.join(rest) or 'none'}."
        )
    file = _file(keys)
    given = Path(rest[0])
    if _HASH.fullmatch(rest[0]):
        kept = [folder / _REFUSED / f"{rest[0]}.fab" for folder in _log_folders(file.parent)]
        given = next((path for path in kept if path.is_file()), given)
    try:
        content = given.read_bytes()
        files = dict(_files(content))
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "is no bundle"
        raise ConfigError(
            f"{rest[0]}: cannot be read ({reason}); name a bundle (flwr build), or the hash of one that this node "
            "refused."
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if _HASH.fullmatch(rest[0]) and rest[0] != digest:
        raise ConfigError(f"{given}: has been changed since it was refused; approve the bundle itself (flwr build).")
    approved = _approvals(file) if file.exists() else []
    if digest in {known["sha256"] for known in approved}:
        say(f"{digest}: is approved already.")
        return 0
    for line in _changes(approved[-1]["files"] if approved else {}, files):
        say(line)
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    approved.append({"sha256": digest, "time": now, "files": files})
    aside = file.with_name(f".{file.name}")
    aside.write_text(json.dumps(approved, indent=1) + "\n", encoding="utf-8")
    # No secret, and the node's user must read what an administrator wrote.
    aside.chmod(0o644)
    aside.replace(file)
    say(f"Approved {digest} ({counted(len(files), 'file')}) in {file}")
    return 0


def _files(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield a bundle's files and their hashes; a hostile one may unpack to more than there is memory."""
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        infos = sorted(bundle.infolist(), key=lambda info: info.filename)
        if sum(info.file_size for info in infos) > _MOST_UNPACKED:
            raise ValueError
        for info in infos:
            with bundle.open(info) as file:
                yield info.filename, hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _shown(text: str) -> str:
    """Return a text of the server's without what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _changes(before: Mapping[str, str], files: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that a bundle has otherwise than the one before."""
    if not before:
        return
    for word, names in (
        ("added", files.keys() - before.keys()),
        ("removed", before.keys() - files.keys()),
        ("changed", {name for name in files.keys() & before.keys() if files[name] != before[name]}),
    ):
        yield from (f"{word:8}{_shown(name)}" for name in sorted(names))


def _approvals(file: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not all(_HASH.fullmatch(known["sha256"]) for known in found):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "it is no list of approvals"
        raise ConfigError(f"{file}: cannot be read ({reason}); florets node approve writes it.") from None
    approved: list[dict[str, Any]] = found
    return approved


def _file(keys: Mapping[str, str]) -> Path:
    return Path(os.path.abspath(keys.get("approved", APPROVED)))


def _show(arguments: Sequence[str]) -> int:
    keys, rest = _read("log", arguments, ("last",))
    if len(rest) > 1 or not all(value.isdecimal() for value in keys.values()):
        raise ConfigError("florets node log: takes one folder and last=<number>.")
    start = Path(rest[0] if rest else ".")
    found = next((folder for folder in _log_folders(start) if (folder / node_log.LOG_FILE).is_file()), None)
    if found is None:
        raise ConfigError(f"{start}: holds no {node_log.LOG_FILE}; name a node's kit, or its log-folder.")
    for text in table(list(NodeLog(found).lines()), int(keys.get("last", 20))):
        print(text)
    return 0


def _log_folders(start: Path) -> list[Path]:
    """Return where a log may be: in a folder itself, in a kit, and in Flower's own."""
    return [start, node_log.default_folder(start / "state" / "flwr"), node_log.default_folder()]


def table(lines: Sequence[Logged], last: int) -> Iterator[str]:
    """Yield the last messages, and the sums of all by run."""
    for line in lines[-last:]:
        left = _left([line]) if line.answer == node_log.ANSWERED else _shown(line.reason)
        when = datetime.datetime.fromtimestamp(line.time).strftime("%m-%d %H:%M:%S")
        message = f"run {line.run} round {line.round}: {_shown(line.kind)} {line.answer}"
        yield f"{when} {message}, {line.seconds:.1f} s: {left}"
    yield ""
    for run, some in groupby(sorted(lines, key=attrgetter("run")), attrgetter("run")):
        group = list(some)
        refused = sum(line.answer == node_log.REFUSED for line in group)
        yield f"run {run}: {counted(len(group), 'message')}, {refused} refused; {_left(group)}"


def _left(lines: Iterable[Logged]) -> str:
    """Return what left in some messages, the most first."""
    sums: dict[str, tuple[int, int]] = {}
    for line in lines:
        for name, one in line.left.items():
            entries, total = sums.get(name, (0, 0))
            sums[name] = entries + one.entries, total + one.size
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    return ", ".join(f"{name} {entries:,} ({size(total)})" for name, (entries, total) in ordered) or "nothing"


def _read(command: str, arguments: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values by key, and the other arguments, which are paths."""
    given, paths, problems = dict[str, str](), list[str](), list[str]()
    for text in arguments:
        key, equals, value = text.partition("=")
        if equals and key in known:
            given[key] = value
        elif text.startswith("-") or (equals and key.isidentifier() and not Path(text).exists()):
            names = ", ".join(known)
            problems.append(f"{text}: florets node {command} has no such key ({names}).{did_you_mean(key, known)}")
        else:
            paths.append(text)
    if problems:
        raise ConfigError(problems)
    return given, paths
