"""Checks of `measure`, `patience` and `statistics`: figures that a run's task has, and what they need."""

from florets.conf.schema import Config

_OF_CLASSES = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
_OF_VALUES = ("r2", "mae", "rmse")
_OF_SUMS = ("balanced_accuracy", "auc", "macro_f1", "r2", "mae", "rmse")
"""Figures over all records together that do not follow from the clients' own."""


def measure_problems(config: Config) -> list[str]:
    """Return one line for each of these keys that cannot work: key and value, rule, remedy."""
    problems, loss = [], config.task.loss
    if config.statistics and loss == "reconstruction":
        problems.append(
            "statistics=true: sums the results of classes or values, and task.loss=reconstruction has neither; leave "
            "statistics out."
        )
    able = {"cross_entropy": _OF_CLASSES, "reconstruction": ()}.get(loss, _OF_VALUES)
    if config.measure not in ("auto", *able):
        fitting = ", ".join(("auto", *able))
        problems.append(f"measure={config.measure}: task.loss={loss} has no such figure; use {fitting}.")
    if config.patience is None:
        return problems
    if config.task.validation_fraction == 0:
        problems.append(
            f"patience={config.patience}: watches a figure on validation data, and there are none; add "
            "task.validation_fraction=0.2, or leave patience out."
        )
    return problems + lacks_sums(config)


def lacks_sums(config: Config) -> list[str]:
    """Return what is wrong where the validation figure follows from sums that no client is asked for."""
    if config.measure not in _OF_SUMS or config.statistics:
        return []
    return [
        f"measure={config.measure}: on validation data it is over all records together, from sums that clients send; "
        "add statistics=true."
    ]
