"""Running cells: one after the other or in several processes, and each that is finished never again."""

import contextlib
import io
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines.workers import end_with_parent
from florets.papers.cells import Cell, Progress, progress_of, write_record
from florets.papers.measures import values_of
from florets.reports.folder import FolderBusy, FolderLock, WriteFailed
from florets.server_app.build import build_task, one_task_kept
from florets.studies import one_run
from florets.studies.go_on import Engine, go_on
from florets.task.registry import check_options, reads_files, resolve


def with_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data can be had, and why others cannot; raise ConfigError where none can.

    Files are read, once for each data set; data that are generated are not made for it.
    """
    problems: dict[str, str] = {}
    ready = []
    for cell in cells:
        # Which files are read, and how.
        task = cell.config.task
        key = json.dumps([task.data, task.data_options, cell.config.data_dir], sort_keys=True, default=str)
        if key not in problems:
            problems[key] = _problem(cell.config)
        if not problems[key]:
            ready.append(cell)
    found = list(dict.fromkeys(filter(None, problems.values())))
    if found and not ready:
        raise ConfigError(found)
    return ready, [f"cells without data are left out: {problem}" for problem in found]


def _problem(config: Config) -> str:
    """Return why the data of a run cannot be loaded; empty where they can."""
    name = config.task.data
    try:
        check_options(resolve("data", name), config.task.data_options, "data", name)
        if reads_files(name):
            _ = build_task(config).data
    except ValueError as error:  # ConfigError is one
        return str(error)
    return ""


ENDED = "a process ended early, killed or out of memory; the same command goes on (a smaller n_jobs needs less)."
BUSY = "another process runs it"


def run_cell(cell: Cell, engine: Engine) -> Progress:
    """Run a cell, or go on with it, unless it is finished; leave a record however it ends, and return where it is."""
    if (found := progress_of(cell)).state == "finished":
        return found
    try:
        with FolderLock(cell.folder):
            # Another command may have come first.
            if (found := progress_of(cell)).state == "finished":
                return found
            cell.record_path.unlink(missing_ok=True)
        # A table is made of it: what a run shows on the screen would bury the lines of the cells.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            summary = go_on(cell.config, cell.overrides, cell.folder, engine)
        if summary.stopped:
            return Progress("stopped", note=f"after round {summary.rounds}")
        return Progress("finished", write_record(cell, values_of(cell.folder, summary, cell.config)))
    except WriteFailed:
        # There is no room for a record either, and every further cell would fail alike.
        raise
    except Exception as error:  # whatever ends a cell, the others go on and the table names it
        if FolderBusy in (type(error), type(error.__cause__)):
            return Progress("stopped", note=BUSY)
        reason = one_run.explain(error)
        write_record(cell, None, reason)
        return Progress("failed", note=reason)


def run_cells(cells: Sequence[Cell], engine: Engine, n_jobs: int) -> Iterator[tuple[Cell, Progress, float]]:
    """Run cells in their order, `n_jobs` at a time; yield each as it ends, with its wall time in seconds."""
    if n_jobs == 1 or len(cells) < 2:
        with one_task_kept():
            for cell in cells:
                yield cell, *_timed(cell, engine)
        return
    others = multiprocessing.active_children()
    # Not forked: a copy of a process that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(n_jobs, len(cells)), context, initializer=_begin)
    try:
        running = {pool.submit(_timed, cell, engine): cell for cell in cells}
        for one in as_completed(running):
            yield running[one], *one.result()
    except BrokenProcessPool:
        raise ConfigError([ENDED]) from None
    finally:
        # Whoever interrupts does not wait for cells that have begun.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()


def _timed(cell: Cell, engine: Engine) -> tuple[Progress, float]:
    start = time.perf_counter()
    return run_cell(cell, engine), time.perf_counter() - start


_until_the_end = contextlib.ExitStack()


def _begin() -> None:
    """Prepare a process of the pool."""
    # Ctrl-C reaches all processes of a terminal: the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    _until_the_end.enter_context(one_task_kept())
