"""Running cells: one after the other or in several processes, and each that is finished never again."""

import contextlib
import io
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

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


ENDED = "its process ended early: killed, or out of memory"
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
    if not cells:
        return
    if n_jobs == 1:
        with one_task_kept():
            for cell in cells:
                start = time.perf_counter()
                yield cell, run_cell(cell, engine), time.perf_counter() - start
        return
    workers = [_Worker(engine) for _ in range(min(n_jobs, len(cells)))]
    waiting = list(reversed(cells))
    try:
        for worker in workers:
            worker.give(waiting.pop())
        while busy := [worker for worker in workers if worker.cell is not None]:
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe not in ready:
                    continue
                yield worker.result(engine)
                if waiting:
                    worker.give(waiting.pop())
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that runs one cell after the other."""

    def __init__(self, engine: Engine) -> None:
        self.cell: Cell | None = None
        self._since = 0.0
        self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        # Not forked: a copy of a process that has used torch's threads may hang.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # No daemon: those may have no processes of their own (`workers`).
        self._process: BaseProcess = context.Process(target=_work, args=(theirs, engine))
        self._process.start()
        theirs.close()

    def give(self, cell: Cell) -> None:
        self.cell, self._since = cell, time.perf_counter()
        self.pipe.send(cell)

    def result(self, engine: Engine) -> tuple[Cell, Progress, float]:
        """Return what has become of the cell; if the process has ended, another one takes its place."""
        cell, self.cell = self.cell, None
        assert cell is not None
        try:
            found = self.pipe.recv()
        except EOFError:
            self.end()
            # It may have ended after the run and before it could say so.
            found = progress_of(cell)
            if found.state != "finished":
                write_record(cell, None, ENDED)
                found = Progress("failed", note=ENDED)
            self._begin(engine)
        if isinstance(found, Exception):
            raise found
        return cell, found, time.perf_counter() - self._since

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _work(pipe: "Connection[Any, Any]", engine: Engine) -> None:
    """Run the cells that come through the pipe until it is closed."""
    # Ctrl-C reaches all processes of a terminal: the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with contextlib.suppress(EOFError), one_task_kept():
        while True:
            cell: Cell = pipe.recv()
            try:
                pipe.send(run_cell(cell, engine))
            except WriteFailed as error:
                pipe.send(error)
