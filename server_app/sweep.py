"""`florets -m`: Hydra's sweepers and launchers run the jobs; a job that fails does not take the others along.

Hydra would compose every job before it runs it, and one wrong combination would end the whole sweep. So Hydra
is given the keys in a form that it cannot object to (`++key=value` over an empty configuration), and each job
composes its own configuration. Jobs may run in other processes (hydra/launcher=joblib): they report by files.
"""

import itertools
import json
import math
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from conf.compose import CONFIG_DIR, compose
from conf.overrides import parse
from conf.problems import ConfigError
from conf.run_folder import run_folder
from conf.schema import Config
from server_app import jobs
from server_app.summary import RunSummary
from server_app.sweep_report import JobResult, write_sweep

# In Hydra's space a key holds either a value or other keys; these hold both (`strategy=ifca strategy.memory=true`).
_CHOICES = {group: f"{group}.choice" for group in ("strategy", "task", "train")}
_PRECHECKED = 20


def run_sweep(overrides: Sequence[str], caller: Path) -> bool:
    """Run every job, write and print the summary; return whether all jobs succeeded.

    Parameters
    ----------
    overrides : sequence of str
        `key=value` texts, some with several values, and Hydra's own (`hydra/launcher=joblib`).
    caller : Path
        The working directory that relative folders are meant from.

    Raises
    ------
    ConfigError
        If the overrides cannot be read, or no job could run.
    """
    own = [text for text in overrides if not text.lstrip("+~").startswith(("hydra/", "hydra."))]
    for_hydra = [text for text in overrides if text not in own]
    parsed = _parse(own)
    plain = not any(text.lstrip("+").startswith("hydra/sweeper") for text in for_hydra)
    if plain:
        _require_one_valid(parsed)
    folder = _sweep_folder(parsed, caller)
    total = math.prod(len(_values(override)) for override in parsed) if plain else None
    print(f"Sweep of {'?' if total is None else total} jobs; its summary goes to {folder}", flush=True)
    cut_short = None
    with tempfile.TemporaryDirectory(prefix="florets-sweep-") as records:
        try:
            _run_hydra([*map(_encode, parsed), *for_hydra], folder, _job(Path(records), caller, total))
        except KeyboardInterrupt:
            cut_short = "the sweep was interrupted; its summary holds the jobs so far"
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError([_launch_problem(error)]) from error
        except Exception as error:  # a worker process may die in any way; what the other jobs found must not be lost
            cut_short = f"the sweep ended early: {jobs.explain(error)}"
        results = _collect(Path(records))
    if results:
        print(f"\n{write_sweep(folder, results)}\nSummary: {folder}")
    if cut_short:
        print(f"florets: {cut_short}", file=sys.stderr)
    return bool(results) and cut_short is None and all(result.error is None for result in results)


def _parse(overrides: Sequence[str]) -> list[Override]:
    problems: list[str] = []
    parsed = parse(overrides, problems)
    for override in parsed:
        if override.is_sweep_override() and not (override.is_choice_sweep() or override.is_range_sweep()):
            if "glob(" in str(override.input_line):
                problems.append(f"{override.input_line}: glob is not understood; name the values, separated by commas.")
        if override.is_add() or override.is_force_add() or override.is_delete() or override.package is not None:
            problems.append(f"{override.input_line}: give keys as key=value or key=value,value.")
    if problems:
        raise ConfigError(problems)
    return parsed


def _values(override: Override) -> list[str]:
    if override.is_choice_sweep() or override.is_range_sweep():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]


def _expand(parsed: Sequence[Override]) -> Iterator[list[str]]:
    keys = [override.key_or_group for override in parsed]
    for values in itertools.product(*map(_values, parsed)):
        yield [f"{key}={value}" for key, value in zip(keys, values, strict=True)]


def _require_one_valid(parsed: Sequence[Override]) -> None:
    """Raise the first job's ConfigError when none of the first jobs is valid: a key mistyped for all of them."""
    first: ConfigError | None = None
    number = 0
    for number, overrides in enumerate(itertools.islice(_expand(parsed), _PRECHECKED + 1), start=1):
        try:
            compose(overrides)
            return
        except ConfigError as error:
            first = first or error
    if first is not None and number <= _PRECHECKED:
        raise first


def _sweep_folder(parsed: Sequence[Override], caller: Path) -> Path:
    given = [override for override in parsed if override.key_or_group == "results_dir"]
    results_dir = Config.results_dir
    if given and not given[0].is_sweep_override():
        results_dir = str(given[0].value())
    folder = jobs.absolute(results_dir, caller) / "sweeps" / time.strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in itertools.count(2):
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            folder = folder.with_name(f"{folder.name.partition('-run')[0]}-run{attempt}")
        except OSError as error:
            raise ConfigError([f"results_dir={results_dir}: cannot be written ({error.strerror}); name another."]) from error
    raise AssertionError("count() does not end")


def _encode(override: Override) -> str:
    key, _, value = str(override.input_line).partition("=")
    return f"++{_CHOICES.get(key, key)}={value}"


def _decode(text: str) -> str:
    key, _, value = text.removeprefix("++").partition("=")
    return f"{next((group for group, choice in _CHOICES.items() if choice == key), key)}={value}"


def _run_hydra(overrides: Sequence[str], folder: Path, job: Callable[[DictConfig], float]) -> None:
    arguments = ["florets", "--multirun", *overrides, f"hydra.sweep.dir='{folder}'"]
    # Hydra reads its arguments from sys.argv alone, and prints errors itself unless it is told to raise them.
    with patch.object(sys, "argv", arguments), patch.dict(os.environ, {"HYDRA_FULL_ERROR": "1"}):
        hydra.main(config_path=str(CONFIG_DIR), config_name="sweep", version_base="1.3")(job)()
    # Hydra's own record repeats the overrides in the form made for it; summary.csv has them as they were typed.
    (folder / "multirun.yaml").unlink(missing_ok=True)


def _launch_problem(error: Exception) -> str:
    text = " ".join(str(error).split())
    hint = ' pip install "florets[sweep]" brings it.' if "joblib" in text else ""
    return f"Hydra cannot start the sweep: {text}{hint}"


def _job(records: Path, caller: Path, total: int | None) -> Callable[[DictConfig], float]:
    """Return what Hydra runs for each job, perhaps in another process: it never raises, but leaves a record."""

    def job(_: DictConfig) -> float:
        settings = HydraConfig.get()
        overrides = [_decode(text) for text in settings.overrides.task]
        alone = "BasicLauncher" in settings.launcher._target_
        return run_job(int(settings.job.num), overrides, records, caller, total, alone)

    return job


def run_job(
    number: int, overrides: Sequence[str], records: Path, caller: Path, total: int | None, alone: bool
) -> float:
    """Run one job, record how it ended, and return its score; NaN when it failed.

    Parameters
    ----------
    number : int
        From 0, in the sweep's order.
    records : Path
        Folder for the record, `<number>.json`.
    alone : bool
        Whether no other job runs at the same time; else the job keeps its progress bar to itself.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    name = f"[{number + 1}/{total or '?'}] {' '.join(overrides)}"
    # Written first, so that a job whose process is killed is not missing from the summary.
    _record(records, number, overrides, None, None, "the process ended before the job did (killed, or out of memory)")
    if alone:
        print(name, flush=True)
    folder, summary, failure = None, None, None
    try:
        config = jobs.prepare(overrides, caller)
        folder = Path(config.results_dir) / run_folder(config, overrides)
        summary = jobs.run(config if alone else replace(config, quiet=True), overrides)
        folder = Path(summary.folder)
    except Exception as error:  # whatever ends a job, the others go on and the summary names it
        failure = jobs.explain(error)
        if not isinstance(error, ConfigError):
            trace = records / f"{number}.txt"
            trace.write_text(traceback.format_exc(), encoding="utf-8")
    _record(records, number, overrides, folder if folder and folder.is_dir() else None, summary, failure)
    outcome = f"failed: {failure}" if summary is None else jobs.headline(summary)
    print(f"    {outcome}" if alone else f"{name}: {outcome}", flush=True)
    return float("nan") if summary is None else jobs.score(summary)


def _record(
    records: Path,
    number: int,
    overrides: Sequence[str],
    folder: Path | None,
    summary: RunSummary | None,
    error: str | None,
) -> None:
    content = {
        "overrides": dict(text.split("=", 1) for text in overrides),
        "folder": None if folder is None else str(folder),
        "summary": None if summary is None else summary.to_json(),
        "error": error,
    }
    (records / f"{number}.json").write_text(json.dumps(content), encoding="utf-8")


def _collect(records: Path) -> list[JobResult]:
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
            )
        )
    return results
