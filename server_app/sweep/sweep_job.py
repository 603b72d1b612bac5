"""One job of a sweep: run it, and leave a record whatever happens; and reading the records back.

Jobs may run in other processes (hydra/launcher=joblib), so they report by files and not by return values.
"""

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.engines import jobs
from florets.engines.go_on import Engine, finished_run, go_on, plain
from florets.reports.console import say
from florets.reports.folder import WriteFailed
from florets.reports.summary import RunSummary
from florets.server_app.own_code import changed_files, changed_words, code_on_disk, recorded_code
from florets.server_app.sweep.sweep_groups import JobResult
from florets.server_app.tracker import part_of
from florets.task import given
from florets.task.edited_modules import reload_edited


@dataclass(frozen=True)
class Sweep:
    """What all jobs of a sweep share.

    Parameters
    ----------
    folder : Path
        The sweep's folder; tracebacks of failed jobs go there.
    records : Path
        Folder of the jobs' records.
    caller : Path
        The working directory that relative folders are meant from.
    total : int or None
        Number of jobs, where it is known beforehand.
    engine : Engine
        Runs one experiment.
    keep : bool
        Whether jobs that are finished are kept, and stopped ones go on; otherwise all begin anew.
    given : mapping
        Objects that were given in Python, see `florets.task.given`.
    """

    folder: Path
    records: Path
    caller: Path
    total: int | None
    engine: Engine
    keep: bool = False
    given: Mapping[str, bytes] = field(default_factory=dict)


_sweeps: set[Path] = set()
"""Sweeps of which this process has run a job."""


def _take_over(sweep: Sweep, alone: bool) -> None:
    """Use the code of the process that began the sweep; one that joblib keeps has run jobs of an earlier sweep."""
    given.adopt(sweep.given)
    if not alone and sweep.folder not in _sweeps:
        reload_edited()
    _sweeps.add(sweep.folder)


def run_job(number: int, overrides: Sequence[str], sweep: Sweep, alone: bool) -> float | None:
    """Run one job, record how it ended, and return its validation figure; None when it failed.

    It never raises. Without validation data there is nothing to choose by, and the figure is None.

    Parameters
    ----------
    number : int
        From 0, in the sweep's order.
    alone : bool
        Whether no other job runs at the same time; beside others a job shows no progress bar.
    """
    title = f"[{number + 1}/{sweep.total or '?'}] {' '.join(overrides)}"
    # Written first, so that a job whose process is killed is not missing from the summary.
    _record(sweep, number, overrides, None, None, "its process ended before it did: killed, or out of memory")
    if alone:
        say(title)
    folder, summary, failure, participation, measure = None, None, None, None, ""
    kept = ""
    try:
        _take_over(sweep, alone)
        config = jobs.prepare(overrides, sweep.caller)
        participation, measure = config.strategy.settings.fraction_train, jobs.measure_name(config)
        folder = results_folder(config, overrides)
        summary, kept = _result(sweep, config if alone else replace(config, quiet=True), overrides, folder)
        folder = Path(summary.folder)
    except KeyboardInterrupt:
        _record(sweep, number, overrides, folder, None, "interrupted")
        raise
    except Exception as error:  # whatever ends a job, the others go on and the summary names it
        failure = jobs.explain(error)
        # These say all; beside a disk that is full there is no room for a traceback either.
        if not isinstance(error, ConfigError | WriteFailed):
            trace = sweep.folder / f"job-{number + 1}-traceback.txt"
            trace.write_text(traceback.format_exc(), encoding="utf-8")
            failure = f"{failure} (traceback: {trace.name})"
    _record(sweep, number, overrides, folder, summary, failure, participation, measure)
    outcome = f"failed: {failure}" if summary is None else jobs.headline(summary)
    if kept:
        outcome += f"; {kept}"
    say(f"      {outcome}" if alone else f"{title}: {outcome}")
    return None if summary is None else summary.final_validation


def _result(sweep: Sweep, config: Config, overrides: Sequence[str], folder: Path) -> tuple[RunSummary, str]:
    """Return the summary of a job, and what to tell of an earlier run of it."""
    if not sweep.keep:
        with part_of(sweep.folder):
            return sweep.engine.run(config, overrides), ""
    code = code_on_disk(config)
    if (summary := finished_run(folder, plain(config), code)) is not None:
        return summary, "finished before"
    changed = changed_files(recorded_code(folder), code)
    told = f"run again, as its code has changed: {changed_words(changed)}" if changed else ""
    with part_of(sweep.folder):
        return go_on(config, overrides, folder, sweep.engine)[0], told


def _record(
    sweep: Sweep,
    number: int,
    overrides: Sequence[str],
    folder: Path | None,
    summary: RunSummary | None,
    error: str | None,
    participation: float | None = None,
    measure: str = "",
) -> None:
    content = {
        "overrides": dict(text.split("=", 1) for text in overrides),
        "folder": str(folder) if folder is not None and folder.is_dir() else None,
        "summary": None if summary is None else summary.to_json(),
        "error": error,
        "participation": participation,
        "measure": measure,
    }
    (sweep.records / f"{number}.json").write_text(json.dumps(content), encoding="utf-8")


def read_records(records: Path) -> list[JobResult]:
    """Return the jobs that were started, in the sweep's order."""
    results = []
    for path in sorted(records.glob("*.json"), key=lambda path: int(path.stem)):
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        summary, folder = content["summary"], content["folder"]
        results.append(
            JobResult(
                overrides=content["overrides"],
                folder=None if folder is None else Path(folder),
                summary=None if summary is None else RunSummary.from_json(summary),
                error=content["error"],
                participation=content["participation"],
                measure=content["measure"],
            )
        )
    return results
