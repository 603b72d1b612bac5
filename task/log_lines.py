"""Log lines as JSON objects, one a line: `log=json` of a run and of a node."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

LOGGERS = ("florets", "flwr")
_NAME = "florets-json"


def json_line(what: str, level: str = "info", logger: str = "florets", at: float | None = None, **more: Any) -> str:
    """Return a line: its time, level and logger, what happened, and of `more` what is not None."""
    at = time.time() if at is None else at
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03d}Z"
    entry = {"time": stamp, "level": level, "logger": logger, "what": what}
    entry |= {name: value for name, value in more.items() if value is not None}
    return json.dumps(entry, ensure_ascii=False, default=str)


class JsonLines(logging.Formatter):
    """Write each record as one line; `extra` may give it a `round` and `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json_line(
            record.getMessage().strip(),
            record.levelname.lower(),
            record.name,
            record.created,
            round=getattr(record, "round", None),
            fields=getattr(record, "fields", None),
            error=self.formatException(record.exc_info) if record.exc_info else None,
        )


def is_json() -> bool:
    """Return whether this process writes its lines as JSON."""
    return any(handler.name == _NAME for handler in logging.getLogger(LOGGERS[0]).handlers)


def start_json() -> Callable[[], None]:
    """Write the lines of the project and of Flower to standard error as JSON; return what undoes it."""
    if is_json():
        return lambda: None
    handler = logging.StreamHandler(sys.stderr)
    handler.name = _NAME
    handler.setLevel(logging.INFO)
    # Flower parts its lines with empty ones.
    handler.addFilter(lambda record: bool(record.getMessage().strip()))
    handler.setFormatter(JsonLines())
    before = {}
    for name in LOGGERS:
        logger = logging.getLogger(name)
        before[logger] = logger.handlers[:], logger.level
        # Flower's own formats its lines itself. What writes to a file stays.
        logger.handlers = [one for one in logger.handlers if not _is_console(one)] + [handler]
        logger.setLevel(logging.INFO if logger.getEffectiveLevel() > logging.INFO else logger.level)

    def undo() -> None:
        for logger, (handlers, level) in before.items():
            logger.handlers = handlers
            logger.setLevel(level)

    return undo


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
