"""`florets -m`: Hydra's sweepers and launchers run the jobs; one that fails does not take the others along."""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from florets.conf.extras import require
from florets.conf.presets import CONFIG_DIR
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.conf.schema import Config
from florets.engines import jobs
from florets.engines.go_on import Engine
from florets.engines.jobs import crowded
from florets.reports.console import counted, say
from florets.server_app.sweep.best import write_best
from florets.server_app.sweep.sweep_direction import direction
from florets.server_app.sweep.sweep_job import Sweep, read_records, run_job
from florets.server_app.sweep.sweep_keys import check_jobs, count_jobs, decode, encode, read_sweep, values_of
from florets.server_app.sweep.sweep_report import write_sweep
from florets.server_app.tracker_stores import end_sweep
from florets.task import given

_INTERRUPTED = "interrupted"


def run_sweep(overrides: Sequence[str], caller: Path, engine: Engine, keep: bool = False) -> tuple[int, Path]:
    """Run every job, write and print the summary; return the exit code and the sweep's folder.

    The code is 0, 1 if a job failed, 130 if interrupted.

    Parameters
    ----------
    overrides : sequence of str
        `key=value` texts, some with several values, and Hydra's own (`hydra/launcher=joblib`).
    caller : Path
        The working directory that relative folders are meant from.
    engine : Engine
        Runs one experiment.
    keep : bool
        Whether jobs that are finished are kept and stopped ones go on.

    Raises
    ------
    ConfigError
        If the overrides cannot be read, a value of them is wrong in every job that has it, or no job can run.
    """
    for_hydra = [text for text in overrides if text.lstrip("+~").startswith(("hydra/", "hydra."))]
    if "hydra/launcher=joblib" in for_hydra:
        require("sweep", "hydra/launcher=joblib")
    if "hydra/sweeper=optuna" in for_hydra:
        require("tune", "hydra/sweeper=optuna")
    texts = [text for text in overrides if text not in for_hydra]
    parsed = read_sweep(texts)
    total: int | None = None
    refused: dict[str, int] = {}
    if any("hydra/sweeper" in text for text in for_hydra):
        for_hydra += direction(parsed, for_hydra)
        total = _trials(for_hydra)
    else:
        refused = check_jobs(parsed)
        total = count_jobs(parsed)
    folder = _sweep_folder(parsed, caller)
    say(f"Sweep of {counted(total, 'job') if total else 'an unknown number of jobs'}; its summary goes to {folder}")
    if warning := crowded(_jobs_at_a_time(for_hydra), _workers(parsed)):
        say(f"florets: {warning}", sys.stderr)
    if keep:
        say("Jobs that are finished are not run again; remove a job's folder to repeat it.")
    for problem, number in refused.items():
        say(f"{number} of {total} jobs cannot run: {problem}", sys.stderr)
    ended_early = None
    chosen = ""
    with tempfile.TemporaryDirectory(prefix="florets-sweep-") as records:
        sweep = Sweep(folder, Path(records), caller, total, engine, keep, given.files_in(texts))
        try:
            _run_hydra([*map(encode, parsed), *for_hydra], sweep)
        except KeyboardInterrupt:
            ended_early = _INTERRUPTED
        except (HydraException, OmegaConfBaseException) as error:
            folder.rmdir()
            raise ConfigError([_launch_problem(error)]) from error
        except Exception as error:  # a worker process may die in any way, and what the others found must be kept
            ended_early = jobs.explain(error)
        results = read_records(sweep.records)
    if results:
        table = write_sweep(folder, results)
        chosen = write_best(folder, results)
        end_sweep(folder, ended_early == _INTERRUPTED)
        say(f"\n{table}\nResults of the sweep: {folder}")
    if ended_early:
        whole = counted(total, "job") if total else "its jobs"
        say(f"florets: the sweep ended early, after {len(results)} of {whole}: {ended_early}", sys.stderr)
    if chosen:
        say(chosen)
    if ended_early == _INTERRUPTED:
        return 130, folder
    whole_sweep = results and ended_early is None and all(result.error is None for result in results)
    return (0 if whole_sweep else 1), folder


def _trials(for_hydra: Sequence[str]) -> int | None:
    """Return how many jobs a sweeper that optimises will run, if that was given."""
    given = dict(text.lstrip("+~").split("=", 1) for text in for_hydra if "=" in text)
    number = given.get("hydra.sweeper.n_trials", "")
    return int(number) if number.isdecimal() else None


def _jobs_at_a_time(for_hydra: Sequence[str]) -> int:
    """Return how many jobs run at a time; -1: as many as there are cores, which is joblib's default."""
    given = dict(text.lstrip("+~").split("=", 1) for text in for_hydra if "=" in text)
    if given.get("hydra/launcher") != "joblib":
        return 1
    number = given.get("hydra.launcher.n_jobs", "-1")
    # What is no number Hydra refuses itself.
    return int(number) if number.lstrip("-").isdecimal() else 1


def _workers(parsed: Sequence[Override]) -> list[str]:
    texts = [text for override in parsed if override.key_or_group == "workers" for text in values_of(override)]
    # Others are refused where the jobs are checked.
    return [text for text in texts if text == "auto" or text.isdecimal()]


def _sweep_folder(parsed: Sequence[Override], caller: Path) -> Path:
    """Make and return a new folder for the summary, under the results folder that all jobs share."""
    results_dir = Config.results_dir
    for override in parsed:
        if override.key_or_group == "results_dir" and not override.is_sweep_override():
            results_dir = str(override.value())
    stem = absolute(results_dir, caller) / "sweeps" / time.strftime("%Y-%m-%d_%H-%M-%S")
    for number in itertools.count(1):
        folder = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # Another sweep began in the same second. A file in the path's way is another matter.
            if folder.is_dir():
                continue
            raise ConfigError([f"results_dir={results_dir}: is not a folder; name another."]) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError([f"results_dir={results_dir}: cannot be written ({reason}); name another."]) from error
        return folder
    raise AssertionError("unreachable: count() does not end")


def _run_hydra(overrides: Sequence[str], sweep: Sweep) -> None:
    arguments = ["florets", "--multirun", *overrides, f"hydra.sweep.dir='{sweep.folder}'"]
    with _hydra_surroundings(arguments):
        try:
            hydra.main(config_path=str(CONFIG_DIR), config_name="sweep", version_base="1.3")(_task(sweep))()
        finally:
            # Hydra's record holds the keys as they were encoded for it; summary.csv has them as they were typed.
            (sweep.folder / "multirun.yaml").unlink(missing_ok=True)


def _task(sweep: Sweep) -> Callable[[DictConfig], float | None]:
    """Return what Hydra calls for each job, perhaps in another process."""

    def task(_: DictConfig) -> float | None:
        settings = HydraConfig.get()
        overrides = [decode(text) for text in settings.overrides.task]
        return run_job(int(settings.job.num), overrides, sweep, "BasicLauncher" in settings.launcher._target_)

    return task


@contextmanager
def _hydra_surroundings(arguments: list[str]) -> Iterator[None]:
    """Let Hydra find its arguments, which it takes from sys.argv alone, and raise its errors, not print them."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = arguments, "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def _launch_problem(error: Exception) -> str:
    return f"Hydra cannot start the sweep: {' '.join(str(error).split())}"
