"""The server of `florets watch`: three pages of one run, on this machine alone."""

import hashlib
import secrets
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from florets.reports.folder import FINISHED
from florets.reports.watch.page import main_part, whole_page
from florets.reports.watch.state import OVER, RunState, Watched

ADDRESS = "127.0.0.1"
_OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
_STALE_SECONDS = 10.0
"""So often the page of a run that goes on is computed anew even where no file has changed: its times have."""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; script-src 'nonce-{nonce}'"
)


class WatchServer(ThreadingHTTPServer):
    """Serve the page of a run at ``http://127.0.0.1:<port>/``; port 0 is a free one.

    Raises
    ------
    OSError
        If the port is taken.
    """

    daemon_threads = True

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self._watched = watched
        # The folder is read by one thread at a time.
        self._lock = threading.Lock()
        self._known: tuple[tuple[object, ...], float, RunState, str] | None = None
        self.end_was_shown = False
        """Whether a page has asked since the run was over."""
        super().__init__((ADDRESS, port), partial(_Pages))

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def state(self) -> RunState:
        """Return the run's state, read anew where its files have changed."""
        return self._now()[0]

    def main_part(self) -> str:
        """Return the part of the page that changes."""
        state, text = self._now()
        self.end_was_shown = state.status in OVER
        return text

    def page(self, nonce: str) -> str:
        """Return the whole page."""
        with self._lock:
            return whole_page(self._watched.state(), self._watched.clients, nonce)

    def report(self) -> bytes | None:
        """Return the run's report, None where it has none."""
        try:
            return (self._watched.folder / FINISHED).read_bytes()
        except OSError:
            return None

    def _now(self) -> tuple[RunState, str]:
        with self._lock:
            signature, now = self._watched.signature(), time.monotonic()
            known = self._known
            is_stale = known is not None and known[2].status not in OVER and now - known[1] > _STALE_SECONDS
            if known is None or known[0] != signature or is_stale:
                state = self._watched.state()
                known = self._known = signature, now, state, main_part(state, self._watched.clients)
            return known[2], known[3]


class _Pages(BaseHTTPRequestHandler):
    """The pages, by their exact paths; no other path and no file is served."""

    server: WatchServer
    protocol_version = "HTTP/1.1"
    server_version = "florets"
    sys_version = ""
    timeout = 30.0

    def do_GET(self) -> None:
        """Answer with a page, 404 for any other path, 421 for another host name."""
        # DNS rebinding: another site can make its own name resolve to this machine, and would read what is served.
        host = self.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _OWN_NAMES:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"This page is for this machine alone.\n", "text/plain")
            return
        try:
            self._answer_to(self.path)
        except OSError:
            # The browser has gone.
            self.close_connection = True
        except Exception as error:  # files of other versions may lack anything, and the next round may be readable
            text = f"The run cannot be shown: {type(error).__name__}: {error}\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, text.encode(), "text/plain")

    def _answer_to(self, path: str) -> None:
        nonce = secrets.token_urlsafe(16)
        if path == "/":
            self._answer(HTTPStatus.OK, self.server.page(nonce).encode(), "text/html", nonce)
        elif path == "/main":
            text = self.server.main_part().encode()
            tag = f'"{hashlib.sha256(text).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == tag:
                self._answer(HTTPStatus.NOT_MODIFIED, b"", "text/html", tag=tag)
            else:
                self._answer(HTTPStatus.OK, text, "text/html", tag=tag)
        elif path == "/report.html" and (report := self.server.report()) is not None:
            self._answer(HTTPStatus.OK, report, "text/html")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"No such page.\n", "text/plain")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, nonce: str = "", tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY.format(nonce=nonce or secrets.token_urlsafe(16)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the command's."""
