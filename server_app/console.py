"""The project's log on the console of a Flower process."""

import logging
import sys

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
