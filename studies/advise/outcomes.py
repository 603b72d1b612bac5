"""Results of the runs of an advice: groups, figures of each method on every client, and the sites' data."""

import csv
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from florets.conf.saved import saved_config
from florets.reports.clients import ClientRow, read_clients
from florets.reports.pooled import PartStatistics, TestStatistics, read_test_statistics
from florets.reports.scores import Part
from florets.reports.summary import last_evidence, read_lines, round_seconds
from florets.server_app.data_agreement import DESCRIPTION
from florets.studies.advise.measures import FloatArray
from florets.task.data.tables.description import Description

Tests = Mapping[str, PartStatistics]
Kind = Literal["groups", "lone", "none", "all_differ", "too_few", "open", "moving"]


@dataclass(frozen=True)
class Finding:
    """Whether there are groups.

    Attributes
    ----------
    kind
        "groups": at least two groups of at least two clients. "lone": one group, and clients that fit nobody. "none":
        the clients cannot be told apart. "all_differ": every client differs from every other. "too_few": no test was
        possible. "open": the rounds were samples of the clients, and too few of these took part. "moving": the model
        had not learned yet what all clients share.
    groups
        The clients of each group, the largest first; of "none" all in one.
    lone
        Clients that are a group of their own, or that no group fits.
    stability
        ARI between the groups of one half of each client's folds and of the other; None where there are none.
    differs
        In what clients of a linear model differ, be it by groups or each by itself: "levels", "coefficients", "both"
        or "nothing"; None where it is not known.
    """

    kind: Kind
    groups: tuple[tuple[str, ...], ...]
    lone: tuple[str, ...] = ()
    p_value: float | None = None
    stability: float | None = None
    differs: str | None = None

    @property
    def num_clients(self) -> int:
        """Clients that were looked at."""
        return len({*self.lone, *(key for group in self.groups for key in group)})


def finding_of(evidence: Mapping[str, Any], models: Mapping[str, int], placed: Collection[str] = ()) -> Finding:
    """Return what the evidence of a run's discovery says.

    `evidence`: the detail of the round that looked for groups. `models`: model of each client at the end of the run,
    where it has one. `placed`: clients that took no part in the search: they are in their groups, and none of them is
    called alone.
    """
    members: dict[int, list[str]] = {}
    for key, model in sorted(models.items()):
        members.setdefault(model, []).append(key)
    groups = tuple(tuple(keys) for _, keys in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))
    verdict, p_value = evidence["verdict"], evidence["p_value"]
    more = (p_value, evidence.get("stability"), evidence.get("differs"))
    if verdict != "groups":
        kind: Kind = verdict if verdict in ("none", "all_differ", "open") else "too_few"
        if verdict == "open" and not evidence.get("needed", 1):
            kind = "moving"
        return Finding(kind, (tuple(sorted(models)),), (), *more)
    searched = [[key for key in keys if key not in placed] for keys in groups]
    lone = tuple(sorted(keys[0] for keys in searched if len(keys) == 1))
    several = sum(len(keys) > 1 for keys in searched) > 1
    return Finding("groups" if several else "lone", groups, lone, *more)


def finding_in(folder: Path, placed: Collection[str] = ()) -> Finding:
    """Return what a finished run's discovery says; see `finding_of`."""
    evidence = last_evidence(read_lines(folder))
    assert evidence is not None
    return finding_of(evidence, _models(read_clients(folder)), placed)


@dataclass(frozen=True)
class Outcome:
    """A method's results.

    `num_bytes` and `seconds` are of all rounds, both directions, without the tests; with those of fine-tuned copies
    where the method is fine-tuning. `is_improving`: the run ended while its models were still improving fast.
    """

    name: str
    test: Tests
    validation: Tests
    groups: Mapping[str, int]
    num_bytes: int
    seconds: float
    folder: str
    rate: float = math.nan
    rounds: int = 0
    train: Mapping[str, FloatArray] = field(default_factory=dict)
    is_improving: bool = False

    def without(self, clients: Collection[str]) -> "Outcome":
        """Return the results without those of some clients."""
        test, validation = (
            {key: figure for key, figure in figures.items() if key not in clients}
            for figures in (self.test, self.validation)
        )
        return replace(self, test=test, validation=validation)


def read_outcome(name: str, folder: Path, rate: float = math.nan, tuned: bool = False) -> Outcome:
    """Read a finished run; with `tuned` the results of the copies that clients fine-tuned, and what that cost."""
    rows, lines = read_clients(folder), read_lines(folder)
    sent = read_test_statistics(folder) or {row.client: _without_sums(row) for row in rows}
    parts: tuple[Part, Part] = ("tuned_test", "tuned_validation") if tuned else ("test", "validation")
    tests = 0.0 if tuned else math.fsum(line["seconds"].get("evaluate", 0.0) for line in lines)
    test, validation = (
        {key: client.parts[part] for key, client in sorted(sent.items()) if part in client.parts} for part in parts
    )
    return Outcome(
        name=name,
        test=test,
        validation=validation,
        groups=_models(rows),
        num_bytes=sum(line["bytes_down"] + line["bytes_up"] for line in lines),
        seconds=math.fsum(map(round_seconds, lines)) - tests,
        folder=str(folder),
        rate=rate,
        rounds=len(lines),
        train={key: client.train for key, client in sent.items() if client.train is not None},
        is_improving=is_improving([line["validation"] for line in lines]),
    )


_LATE, _STEEP, _FEWEST_TESTS = 0.25, 0.1, 4
"""Last part of a run, and the part of all progress that a run which has converged does not make there."""


def is_improving(figures: Sequence[float | None]) -> bool:
    """Return whether validation figures, by round, were still improving fast at the end of a run.

    More than a tenth of all progress was then made in the last quarter, and the last figure is the best. Of fewer
    than four figures nobody can say.
    """
    known = [one for one in figures if one is not None]
    if len(known) < _FEWEST_TESTS:
        return False
    progress, late = known[-1] - known[0], known[-1] - known[-1 - math.ceil(_LATE * (len(known) - 1))]
    is_last_best = known[-1] in (min(known), max(known)) and known[-1] != known[0]
    return is_last_best and late / progress > _STEEP


def has_linear_models(folder: Path) -> bool:
    """Return whether a run's models are linear: they are called so, or have no hidden layer."""
    task = saved_config(folder, trust=True).task
    return task.model == "linear" or (task.model == "mlp" and not task.model_options.get("hidden", True))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _models(rows: Collection[ClientRow]) -> dict[str, int]:
    return {row.client: row.found_cluster for row in rows if row.found_cluster is not None}


_RECORDS: dict[Part, Part] = {
    "test": "test",
    "validation": "validation",
    "tuned_test": "test",
    "tuned_validation": "validation",
}
"""The part whose records are counted for each part's."""


def _without_sums(row: ClientRow) -> TestStatistics:
    """Return what ``clients.csv`` says of a client that sends no sums: loss and accuracy."""
    parts: dict[Part, PartStatistics] = {}
    for part, counted in _RECORDS.items():
        scores = {name: value for name in ("loss", "accuracy") if (value := row.score(part, name)) is not None}
        if "loss" in scores:
            parts[part] = PartStatistics(int(row.score(counted, "examples") or 0), scores)
    return TestStatistics(parts)


def read_names(folder: Path) -> dict[str, str]:
    """Return the clients' names in a run's ``clients.csv`` where they have others than their keys."""
    return {row.client: row.name for row in read_clients(folder) if row.name}


def read_losses(folder: Path) -> dict[str, list[float]]:
    """Return the loss of each model on each client's training records, from a run's ``loss_matrix.csv``."""
    path = folder / "loss_matrix.csv"
    return {
        row["client"]: [float(value) for name, value in row.items() if name.startswith("model_") and value]
        for row in (_rows(path) if path.is_file() else ())
    }


@dataclass(frozen=True)
class Moments:
    """Number, mean and variance of the known values of a column, or of a target; NaN for a range that is not known.

    `width` is from about the 10th to the 90th percentile: a few outliers do not move it.
    """

    count: int
    mean: float
    variance: float
    width: float = math.nan


@dataclass(frozen=True)
class Site:
    """What a site says of its training records.

    `columns`: of the numeric inputs, and the share of each category as ``column = category``. `counts`: records of
    each class (C,); None for values.
    """

    columns: Mapping[str, Moments] = field(default_factory=dict)
    counts: FloatArray | None = None
    target: Moments | None = None

    @property
    def records(self) -> int:
        """Training records."""
        if self.counts is not None:
            return int(self.counts.sum())
        return self.target.count if self.target else max((one.count for one in self.columns.values()), default=0)


def read_sites(folder: Path, train: Mapping[str, FloatArray], is_regression: bool) -> dict[str, Site]:
    """Return what the sites of a run said of their data.

    `folder`: the run's, with ``description.json`` where sites described tables or arrays. `train`: by site the
    training records of each class (C,), or number, mean and sum of squares of the targets (3,).
    """
    path = folder / DESCRIPTION
    sent = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {
        key: _site(Description.of(sent[key]) if key in sent else None, train.get(key), is_regression)
        for key in sorted({*sent, *train})
    }


def _site(described: Description | None, train: FloatArray | None, is_regression: bool) -> Site:
    columns = {} if described is None else _columns(described)
    target: Moments | None = None
    if train is not None and is_regression:
        target = Moments(int(train[0]), float(train[1]), float(train[2] / max(train[0], 1)))
        own = None if described is None else described.target
        if own is not None and own.known:
            # In its unit, where models train on standardised targets; of few values no mean is sent.
            target = Moments(own.known, own.mean, own.m2 / own.known)
    return Site(columns, None if is_regression else train, target)


def _columns(site: Description) -> dict[str, Moments]:
    columns = {}
    for column in site.columns:
        if column.role != "input":
            continue
        if column.kind == "numeric" and math.isfinite(column.mean) and column.known:
            width = column.quantiles[2] - column.quantiles[0] if len(column.quantiles) == 3 else math.nan
            columns[column.name] = Moments(column.known, column.mean, column.m2 / column.known, width)
        for category, count in column.categories.items():
            share = count / column.known
            columns[f"{column.name} = {category}"] = Moments(column.known, share, share * (1 - share))
    return columns
