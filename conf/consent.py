"""Consent to code that a file names by an import path: a preset's or a saved run's is used only with `trust=true`."""

from collections.abc import Mapping
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.schema import Config, as_plain
from florets.strategies.registry import UnknownStrategy, find_strategy

TRUST = "trust"
"""Key in addition to an experiment's: code that files name may be imported and called."""

_TASK_PARTS = ("data", "partition", "model", "loss")
_MEASURE = "measure"

TRACKER = "tracker"
"""The one key of them whose code runs on the server alone, and has no part in what a run computes."""

IMPORTING = ("strategy", *(f"task.{part}" for part in _TASK_PARTS), _MEASURE, TRACKER)
"""Keys that take an import path."""


def import_paths(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the import paths that nested plain values name, by their keys; nothing is imported."""
    task, strategy = values.get("task"), values.get("strategy")
    parts = task if isinstance(task, Mapping) else {}
    found = {f"task.{part}": str(parts[part]) for part in _TASK_PARTS if ":" in str(parts.get(part, ""))}
    if ":" in (measure := str(values.get(_MEASURE, ""))):
        found[_MEASURE] = measure
    trackers = values.get(TRACKER)
    if own := [str(one) for one in (trackers if isinstance(trackers, list) else [trackers]) if ":" in str(one)]:
        found[TRACKER] = ",".join(own)
    name = str(strategy.get("name", "") if isinstance(strategy, Mapping) else strategy)
    if ":" in name:
        try:
            known = find_strategy(name)
        except UnknownStrategy:
            # What it is instead is said where the configuration is read.
            return found
        if not known.trusted:
            found["strategy"] = known.path
    return found


def imported_functions(config: Config) -> list[str]:
    """Return the keys, with their values, that name code by an import path: a run of this configuration runs it."""
    return [f"{key}={path}" for key, path in import_paths(as_plain(config)).items()]


def require_trust(where: str, named: Mapping[str, str]) -> None:
    """Raise ConfigError for import paths that a file names, by their keys, before anything of them is imported."""
    if named:
        listed = ", ".join(f"{key}={path}" for key, path in named.items())
        raise ConfigError(
            f"{where} names code of its author's, {listed}; add {TRUST}=true if you know it (in flwr run: "
            f"overrides='{TRUST}=true'): it is imported and called then."
        )


def read_trust(value: Any, text: str, problems: list[str]) -> bool:
    """Return the value of the key `trust` as it was given in `text`; what is wrong is appended to `problems`."""
    if not isinstance(value, bool):
        problems.append(f"{text}: must be true or false.")
    return value is True
