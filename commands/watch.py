"""The command `florets watch`: a page that shows a run while it goes on."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from florets.commands.given_keys import keys_and_paths
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.reports.console import say

if TYPE_CHECKING:
    from florets.reports.watch.server import WatchServer

_KEYS = ("port", "until_end")
_LOOK_SECONDS = 0.5
_LAST_SECONDS = 5.0
"""Seconds for which the end of a run is served to a page that has not asked for it yet."""

HELP = """florets watch <folder> [port=<number>] [until_end=true]
  Serve a page for this machine's browser that refreshes itself while the run in the folder is in progress: curves of
  ARI and accuracy, who is in which group and who moved, each client's losses, replies, the remaining time. The run
  may start later or be finished already. Ctrl-C ends the command.

  port=0        port on 127.0.0.1; 0: a free one
  until_end     true: end with the run: exit code 0, or 1 if the run ended early"""


def main(arguments: Sequence[str]) -> int:
    """Serve the page until ctrl-C, or the run's end; return the exit code."""
    folder, port, until_end = _read(arguments)
    # They load what reads a run: --help needs none of it.
    from florets.reports.watch.server import WatchServer
    from florets.reports.watch.state import Watched

    try:
        server = WatchServer(Watched(folder), port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"port={port}: cannot be used ({reason}); give another, or 0 for a free one.") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    say(f"{server.url} shows {folder}" + ("" if until_end else "; ctrl-C ends"))
    try:
        return _wait(server) if until_end else _wait_for_ever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _wait(server: "WatchServer") -> int:
    """Wait for the run's end, and until a page has shown it or none seems to be open; return the exit code."""
    from florets.reports.watch.state import OVER

    while (state := server.state()).status not in OVER:
        time.sleep(_LOOK_SECONDS)
    deadline = time.monotonic() + _LAST_SECONDS
    while not server.end_was_shown and time.monotonic() < deadline:
        time.sleep(0.1)
    return 0 if state.status == "finished" else 1


def _wait_for_ever() -> int:
    while True:
        time.sleep(3600.0)


def _read(arguments: Sequence[str]) -> tuple[Path, int, bool]:
    """Return the folder, the port, and whether the command ends with the run."""
    given, folders, problems = keys_and_paths("watch", arguments, _KEYS)
    if len(folders) != 1:
        problems.append(f"florets watch: needs one folder of a run, and was given {', '.join(folders) or 'none'}.")
    port = given.get("port", "0")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        problems.append(f"port={port}: must be an integer from 0 to 65535; 0 takes a free one.")
    until_end = given.get("until_end", "false")
    if until_end not in ("true", "false"):
        problems.append(f"until_end={until_end}: must be true or false.")
    if problems:
        raise ConfigError(problems)
    return absolute(folders[0], Path.cwd()), int(port), until_end == "true"
