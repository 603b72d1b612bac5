"""`florets -m`: Hydra's sweepers and launchers run the jobs; one that fails does not take the others along."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from florets.conf.extras import require
from florets.conf.presets import CONFIG_DIR
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, results_folder
from florets.conf.schema import Config
from florets.reports.console import counted, say
from florets.reports.folder import WriteFailed, write_whole
from florets.server_app.own_code import code_on_disk
from florets.studies import one_run
from florets.studies.go_on import Engine, finished_run, go_on, plain
from florets.studies.sweep.jobs import Job
from florets.studies.sweep.keys import check_jobs, decode, encode, expand, read_sweep
from florets.studies.sweep.report import best_of, write_sweep
from florets.task import given
from florets.task.edited_modules import reload_edited

_INTERRUPTED = "interrupted"
_sweeps: set[Path] = set()
"""Sweeps of which this process has run a job."""


@dataclass(frozen=True)
class Sweep:
    """What all jobs of a sweep share; relative folders are meant from `caller`.

    With `keep` finished jobs are kept, and stopped ones go on. `given`: objects that were given in Python.
    """

    folder: Path
    records: Path
    caller: Path
    total: int
    engine: Engine
    keep: bool
    given: Mapping[str, bytes]


def run_job(number: int, overrides: Sequence[str], sweep: Sweep, alone: bool) -> float | None:
    """Run one job, record how it ended, and return its validation figure; it never raises.

    None: it failed, or there are no validation data. `alone`: whether no other job runs at the same time; in parallel
    a job shows no progress bar.
    """
    title = f"[{number + 1}/{sweep.total}] {' '.join(overrides)}"
    # Written first, so that a job whose process is killed is not missing from the summary.
    keys = dict(text.split("=", 1) for text in overrides)
    job = Job(keys, error="its process ended early: killed, or out of memory")
    _record(sweep, number, job)
    if alone:
        say(title)
    note = ""
    try:
        given.adopt(sweep.given)
        # A process that joblib keeps has run jobs of an earlier sweep.
        if not alone and sweep.folder not in _sweeps:
            reload_edited()
        _sweeps.add(sweep.folder)
        config = one_run.prepare(overrides, sweep.caller)
        folder = results_folder(config, overrides)
        job = replace(job, folder=str(folder), measure=one_run.measure_name(config))
        config = config if alone else replace(config, quiet=True)
        earlier = finished_run(folder, plain(config), code_on_disk(config)) if sweep.keep else None
        if earlier is not None:
            summary, note = earlier, "; finished before"
        elif sweep.keep:
            summary = go_on(config, overrides, folder, sweep.engine)
        else:
            summary = sweep.engine.run(config, overrides)
        if summary.stopped:
            job = replace(job, error=f"stopped after {counted(summary.rounds, 'round')}")
        else:
            job = replace(job, summary=summary, error="")
    except KeyboardInterrupt:
        _record(sweep, number, replace(job, error=_INTERRUPTED))
        raise
    except Exception as error:  # whatever ends a job, the others go on and the summary names it
        failure = one_run.explain(error)
        # These say all; on a full disk there is no room for a traceback either.
        if not isinstance(error, ConfigError | WriteFailed):
            trace = sweep.folder / f"job-{number + 1}-traceback.txt"
            write_whole(trace, traceback.format_exc())
            failure = f"{failure} (traceback: {trace.name})"
        job = replace(job, error=failure)
    _record(sweep, number, job)
    outcome = f"failed: {job.error}" if job.summary is None else one_run.headline(job.summary)
    say(f"      {outcome}{note}" if alone else f"{title}: {outcome}{note}")
    return None if job.summary is None else job.summary.final_validation


def _record(sweep: Sweep, number: int, job: Job) -> None:
    (sweep.records / f"{number:06d}.json").write_text(job.to_json(), encoding="utf-8")


def run_sweep(
    overrides: Sequence[str], caller: Path, engine: Engine, keep: bool = False, trials: int | None = None
) -> tuple[int, Path]:
    """Run every job, write and print the summary; return the exit code and the sweep's folder.

    The code is 0, 1 if a job failed, 130 if interrupted.

    `overrides`: `key=value` texts, some with several values, and Hydra's own (`hydra/launcher=joblib`). `caller`: the
    working directory that relative folders are meant from. `trials`: how many jobs a sweeper proposes; None: all
    combinations are run.
    """
    for_hydra = [text for text in overrides if text.lstrip("+~").startswith(("hydra/", "hydra."))]
    for extra, text in (("sweep", "hydra/launcher=joblib"), ("tune", "hydra/sweeper=optuna")):
        if text in for_hydra:
            require(extra, text)
    texts = [text for text in overrides if text not in for_hydra]
    parsed = read_sweep(texts)
    refused: Mapping[str, int] = {}
    if trials is None:
        if any(text.startswith(("hydra/sweeper", "hydra.sweeper")) for text in for_hydra):
            raise ConfigError("hydra/sweeper: settings that a sweeper proposes are those of florets tune.")
        refused = check_jobs(parsed)
    total = sum(1 for _ in expand(parsed)) if trials is None else trials
    folder = _sweep_folder(parsed, caller)
    say(f"Sweep of {counted(total, 'job')}; its summary goes to {folder}")
    if keep:
        say("Jobs that are finished are not run again; remove a job's folder to repeat it.")
    for problem, number in refused.items():
        say(f"{number} of {total} jobs cannot run: {problem}", sys.stderr)
    ended_early = None
    with TemporaryDirectory(prefix="florets-sweep-", ignore_cleanup_errors=True) as name:
        records = Path(name)
        sweep = Sweep(folder, records, caller, total, engine, keep, given.files_in(texts))
        try:
            _run_hydra([*map(encode, parsed), *for_hydra], sweep)
        except KeyboardInterrupt:
            ended_early = _INTERRUPTED
        except (HydraException, OmegaConfBaseException) as error:
            folder.rmdir()
            raise ConfigError([f"Hydra cannot start the sweep: {' '.join(str(error).split())}"]) from None
        except Exception as error:  # a worker process may die in any way, and what the others found must be kept
            ended_early = one_run.explain(error)
        jobs = [Job.of(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(records.glob("*.json"))]
    if jobs:
        say(f"\n{write_sweep(folder, jobs)}\nResults of the sweep: {folder}")
    if ended_early:
        whole = counted(total, "job")
        say(f"florets: the sweep ended early, after {len(jobs)} of {whole}: {ended_early}", sys.stderr)
    if (best := best_of(jobs)) is not None:
        say(best.words)
    if ended_early == _INTERRUPTED:
        return 130, folder
    return (0 if jobs and not ended_early and all(job.summary for job in jobs) else 1), folder


def _sweep_folder(parsed: Sequence[Override], caller: Path) -> Path:
    """Make and return a new folder for the summary, under the results folder that all jobs share."""
    shared = [one for one in parsed if one.key_or_group == "results_dir" and not one.is_sweep_override()]
    results_dir = str(shared[-1].value()) if shared else Config.results_dir
    folder = stem = absolute(results_dir, caller) / "sweeps" / time.strftime("%Y-%m-%d_%H-%M-%S")
    number = 1
    # Another sweep may have begun in the same second.
    while folder.exists():
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([f"results_dir={results_dir}: cannot be written ({reason}); name another."]) from None
    return folder


def _run_hydra(overrides: Sequence[str], sweep: Sweep) -> None:
    """Let Hydra run the jobs; it reads sys.argv alone, and would print its errors rather than raise them."""
    argv, before = sys.argv, {key: os.environ[key] for key in ("HYDRA_FULL_ERROR",) if key in os.environ}
    sys.argv = ["florets", "--multirun", *overrides, f"hydra.sweep.dir='{sweep.folder}'"]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(config_path=str(CONFIG_DIR), config_name="sweep", version_base="1.3")(_task(sweep))()
    finally:
        sys.argv = argv
        del os.environ["HYDRA_FULL_ERROR"]
        os.environ.update(before)
        # Hydra's record holds the keys as they were encoded for it; summary.csv has them as they were typed.
        (sweep.folder / "multirun.yaml").unlink(missing_ok=True)


def _task(sweep: Sweep) -> Callable[[DictConfig], float | None]:
    """Return what Hydra calls for each job, perhaps in another process."""

    def task(_: DictConfig) -> float | None:
        settings = HydraConfig.get()
        overrides = [decode(text) for text in settings.overrides.task]
        return run_job(int(settings.job.num), overrides, sweep, "BasicLauncher" in settings.launcher._target_)

    return task
