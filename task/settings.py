"""The keys of `task`: data, how they are spread over clients, model and loss."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from florets.task.keys import from_plain, range_problems, setting
from florets.task.registry import Kind, names

T = TypeVar("T")


@dataclass(frozen=True)
class Drift:
    """Clients that move to other groups during a simulation."""

    rounds: list[int] = setting([], "rounds, from 2, in which clients trade data with other groups; none: never")
    fraction: float = setting(0.25, "fraction of the clients that move", above=0, most=1, needs="task.drift.rounds")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Drift":
        """Read the plain values of a task's description, in which no key means no drift."""
        drift = _read(cls, values, "task.drift")
        if problems := drift.problems():
            raise ValueError(" ".join(problems))
        return drift

    def problems(self) -> list[str]:
        """Return one line for each combination that cannot work: key and value, rule, remedy."""
        found, rounds = [], f"task.drift.rounds={str(self.rounds).replace(' ', '')}"
        if min(self.rounds, default=2) < 2:
            found.append(f"{rounds}: must be at least 2; round 1 has the first data.")
        if self.rounds != sorted(set(self.rounds)):
            found.append(f"{rounds}: must be ascending; sort them and name each once.")
        return found


def _read(cls: type[T], values: Mapping[str, Any], key: str) -> T:
    """Return settings of plain values that came in a task's description; ValueError with all that is wrong."""
    found = from_plain(cls, values, f"{key}.")
    if problems := range_problems(found, f"{key}."):
        raise ValueError(" ".join(problems))
    return found


@dataclass(frozen=True)
class Adapter:
    """Adapters of low rank (`task.adapter=lora`); see `florets.task.adapters`."""

    rank: int = setting(8, "rank of each layer's change B A, which counts 16 / rank times", least=1)
    targets: list[str] = setting([], "layers that get one, by name or its last part; none: all linear layers")
    whole: list[str] = setting([], "name prefixes of layers that are trained as they are, such as a new head")
    train: Literal["both", "b"] = setting(
        "both", "train A and B, whose means multiply to another change than the mean change; b: B alone, exact"
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Adapter":
        """Read the plain values of a task's description; ValueError with all that is wrong."""
        return _read(cls, values, "task.adapter_options")


@dataclass(frozen=True)
class TableConfig:
    """Tables of real sites (task.data=own); `task.data.tables.declaration.Declaration` checks them."""

    target: str = setting("", "column to predict; for short target=<column>. Empty: the last one")
    columns: list[str] = setting([], "input columns; none: those that most sites have")
    drop: list[str] = setting([], "columns that are not inputs")
    id: list[str] = setting([], "columns that identify a record: never trained on, returned with predictions")
    group: str = setting(
        "", "column that identifies a subject (a patient), whose records stay together in all splits"
    )
    owner: str = setting(
        "", "if all clients share one table: the column that names each record's client; for short owner=<column>"
    )
    categorical: list[str] = setting(
        [], "numeric columns that hold category codes (columns of words always count as categories)"
    )
    missing: list[str] = setting(
        [], "cells that mean a missing value, besides ., ?, NA, null and errors such as #N/A"
    )
    preprocessing: dict[str, Any] = setting(
        {}, "preprocessing.json of another run, or written by hand (docs/tables.md); none: sites agree on one"
    )
    classes: dict[str, Any] = setting(
        {}, "classes of the target with the cells that mean each: {no: [0], yes: [1,2]}"
    )
    regression: bool | None = setting(None, "whether the target is numeric; null: detected")
    stratify: bool = setting(True, "split each class, or quantile of a regression's target, in the same fractions")


SQUARED = ("squared_error", "half_squared_error")
"""Losses of which linear models have solutions in closed form."""
PLAIN_LOSSES = ("cross_entropy", *SQUARED, "reconstruction")
"""Losses that several clients' samples are computed on together."""
LOSSES = (*PLAIN_LOSSES, "binary_cross_entropy", "poisson", "quantile", "quantile_<percent>")
_QUANTILE = re.compile(r"quantile(?:_(\d{1,2}(?:\.\d+)?))?")


def quantile_of(loss: str) -> float | None:
    """Return the level of ``quantile_<percent>``, 0.5 without a number; None: it is another loss."""
    found = _QUANTILE.fullmatch(loss)
    level = None if found is None else float(found[1] or 50) / 100
    return level if level else None


def is_loss(loss: str) -> bool:
    """Return whether this is the name of a loss, or may be an import path."""
    return loss in LOSSES or ":" in loss or quantile_of(loss) is not None


def of_values(loss: str) -> bool:
    """Return whether a built-in loss takes values as targets and no classes."""
    return is_loss(loss) and ":" not in loss and loss not in ("cross_entropy", "reconstruction")


def scales_targets(loss: str) -> bool:
    """Return whether values are standardised before training: where that changes the loss by a factor alone."""
    return loss in SQUARED or quantile_of(loss) is not None


def _named(kind: Kind) -> str:
    return f"{', '.join(names(kind))} or a function as package.module:function"


@dataclass(frozen=True)
class TaskConfig:
    """Data, how they are spread over clients, model and loss."""

    data: str = setting("digits", f"{_named('data')} (own: your files)")
    partition: str = setting(
        "rotation",
        f"how samples are divided among clients: {_named('partition')} (composed: from parts, see "
        "docs/partitions.md; own: each node its own data)",
    )
    model: str = setting(
        "mlp", f"model: auto (with data of your own: linear for tables, else mlp), {_named('model')}"
    )
    loss: str = setting(
        "cross_entropy",
        "cross_entropy, squared_error, half_squared_error, reconstruction, binary_cross_entropy (several labels a "
        "sample), poisson, quantile_<percent>, or a function of (outputs, targets), package.module:function",
    )
    num_clusters: int = setting(4, "true number of clusters of the partition; 0: unknown (natural, or your own)")
    data_options: dict[str, Any] = setting({}, "options of the data set's function")
    partition_options: dict[str, Any] = setting({}, "options of the partition's function")
    model_options: dict[str, Any] = setting({}, "options of the model's function")
    adapter: Literal["none", "lora"] = setting(
        "none", "lora: the model is frozen and small adapters of its layers are trained; needs the extra adapters"
    )
    adapter_options: Adapter = setting(Adapter(), "adapters", needs="task.adapter=lora")
    head_layers: list[str] = setting([], "name prefixes of the model's head; none: the built-in model's own")
    validation_fraction: float = setting(
        0.0, "fraction of each client's training samples that is tested on and never trained on", least=0, below=1
    )
    table: TableConfig = setting(TableConfig(), "tables of real sites")
    drift: Drift = setting(Drift(), "clients that change groups")


ONE_IN = 5
"""One training sample in so many is held out, at least one; of a single sample none."""


def left_after(count: int) -> int:
    """Return how many of a client's training samples are trained on where a part is held out."""
    return count if count < 2 else count - max(1, count // ONE_IN)
