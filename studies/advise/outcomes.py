"""Results of the runs of an advice: groups, figures of each method on every client, and the sites' data."""

import csv
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from florets.conf.saved import saved_config
from florets.reports.clients import ClientRow, read_clients
from florets.reports.pooled import PartStatistics, TestStatistics, read_test_statistics
from florets.reports.scores import Part
from florets.reports.summary import last_evidence, read_lines, round_seconds
from florets.server_app.own_data import DESCRIPTION
from florets.studies.advise.measures import FloatArray
from florets.task.data.tables.description import Description

Tests = Mapping[str, PartStatistics]
Kind = Literal["groups", "lone", "none", "all_differ", "too_few", "open"]


@dataclass(frozen=True)
class Finding:
    """Whether there are groups.

    `kind`: "groups", at least two groups of at least two clients; "lone", one group, and clients that fit nobody;
    "none", the clients cannot be told apart; "all_differ", every client differs from every other; "too_few", no test
    was possible; "open", the rounds were too few for one. `groups`: the clients of each, the largest first; of "none"
    all in one. `lone`: clients that are a group of their own. `stability`: ARI between the groups of one half of each
    client's folds and of the other. `differs`: in what clients of a linear model differ, be it by groups or each by
    itself: "levels", "coefficients", "both" or "nothing".
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

    `models`: model of each client at the end of the run, where it has one. `placed`: clients that took no part in the
    search: they are in their groups, and none of them is called alone.
    """
    members: dict[int, list[str]] = {}
    for key, model in sorted(models.items()):
        members.setdefault(model, []).append(key)
    groups = tuple(tuple(keys) for _, keys in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))
    more = (evidence["p_value"], evidence.get("stability"), evidence.get("differs"))
    if evidence["verdict"] != "groups":
        return Finding(evidence["verdict"], (tuple(sorted(models)),), (), *more)
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
    where the method is fine-tuning.
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
    )


def has_linear_models(folder: Path) -> bool:
    """Return whether a run's models are linear: they are called so, or have no hidden layer."""
    task = saved_config(folder, trust=True).task
    return task.model == "linear" or (task.model == "mlp" and not task.model_options.get("hidden", True))


def _models(rows: Collection[ClientRow]) -> dict[str, int]:
    return {row.client: row.found_cluster for row in rows if row.found_cluster is not None}


def _without_sums(row: ClientRow) -> TestStatistics:
    """Return what ``clients.csv`` says of a client that sends no sums: its losses."""
    parts: dict[Part, PartStatistics] = {}
    for part in get_args(Part):
        if (loss := row.score(part, "loss")) is not None:
            # A copy is tested on the records of the model that it is of.
            records = row.cells.get(f"{part.removeprefix('tuned_')}_examples")
            parts[part] = PartStatistics(int(records or 0), {"loss": loss})
    return TestStatistics(parts)


def read_names(folder: Path) -> dict[str, str]:
    """Return the clients' names in a run's ``clients.csv`` where they have others than their keys."""
    return {row.client: row.name for row in read_clients(folder) if row.name}


def read_losses(folder: Path) -> dict[str, list[float]]:
    """Return the loss of each model on each client's training records, from a run's ``loss_matrix.csv``."""
    path = folder / "loss_matrix.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["client"]: [float(value) for name, value in row.items() if name.startswith("model_") and value]
            for row in csv.DictReader(file)
        }


@dataclass(frozen=True)
class Moments:
    """Number, mean and variance of the known values of a column, or of a target.

    `width` is from about the 10th to the 90th percentile, NaN where it is not known: a few outliers do not move it.
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
    """Return what the sites of a run said of their data, in ``description.json`` where they described them.

    `train`: by site the training records of each class (C,), or number, mean and sum of squares of the targets (3,).
    """
    path = folder / DESCRIPTION
    sent = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    sites = {}
    for key in sorted({*sent, *train}):
        described, own = Description.of(sent[key]) if key in sent else None, train.get(key)
        target = None
        if own is not None and is_regression:
            target = Moments(int(own[0]), float(own[1]), float(own[2] / max(own[0], 1)))
            if described and described.target and (known := described.target.known):
                # In its unit, where models train on standardised targets; of few values no mean is sent.
                target = Moments(known, described.target.mean, described.target.m2 / known)
        sites[key] = Site(_columns(described) if described else {}, None if is_regression else own, target)
    return sites


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
