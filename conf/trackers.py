"""Names of the trackers that a run is logged with, read and checked without importing any."""

from collections.abc import Sequence

from florets.conf.problems import did_you_mean

BUILT_IN = ("tensorboard", "mlflow", "wandb")
"""Each is also the name of the extra that installs it."""


def tracker_names(value: str | Sequence[str]) -> list[str]:
    """Return the names that the key `tracker` holds, one or a list."""
    return [value] if isinstance(value, str) else list(value)


def tracker_problems(value: str | Sequence[str]) -> list[str]:
    """Return one line per problem of the key `tracker`; what an import path leads to shows where the run starts."""
    problems, names = [], tracker_names(value)
    for name in dict.fromkeys(names):
        if ":" not in name and name not in BUILT_IN:
            problems.append(
                f"tracker={name}: must be {', '.join(BUILT_IN)} or an import path package.module:Class."
                f"{did_you_mean(name, BUILT_IN)}"
            )
        if names.count(name) > 1:
            problems.append(f"tracker={name}: is named twice; keep one.")
    return problems
