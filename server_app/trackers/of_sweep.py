"""Runs of a sweep and the sweep itself, as trackers see them."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from florets.server_app.trackers.mlflow_tracker import end_parent

log = logging.getLogger("florets")

_VARIABLE = "FLORETS_SWEEP"
"""Environment variable that names the sweep's folder to its jobs, which may run in processes of Flower's."""


@contextmanager
def part_of(sweep: Path) -> Iterator[None]:
    """Let runs inside be logged as jobs of the sweep with this folder."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(sweep)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def present_sweep() -> Path | None:
    """Return the folder of the sweep that this process runs a job of."""
    return Path(found) if (found := os.environ.get(_VARIABLE)) else None


def end_sweep(sweep: Path, interrupted: bool = False) -> None:
    """End the trackers' common run of a sweep's jobs; a failure is logged and changes nothing else."""
    files = [path for kind in ("*.csv", "*.md", "*.png", "best.yaml") for path in sorted(sweep.glob(kind))]
    try:
        # <results_dir>/sweeps/<time>
        end_parent(sweep, sweep.parents[1], files, interrupted)
    except Exception as error:  # a tracker may fail in any way, and no result depends on it
        log.warning("tracker=mlflow failed at the end of the sweep: %s", error)
