"""The process that worker processes are copies of: it loads the ClientApp once, and computes nothing."""

from multiprocessing import forkserver

_LOADED = [
    "florets.client_app.app",
    "florets.client_app.batching",
    "florets.commands.main",
    "florets.server_app.workers.worker",
]


def start_fork_server() -> None:
    """Let it begin to load; where it runs already, do nothing."""
    forkserver.set_forkserver_preload(_LOADED)
    forkserver.ensure_running()
