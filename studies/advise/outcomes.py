"""The results of one method on every client, read from its run's folder."""

import csv
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from florets.reports.pooled import PartStatistics, TestStatistics, read_test_statistics
from florets.reports.summary import last_evidence, read_lines, round_seconds
from florets.server_app.data_agreement import DESCRIPTION
from florets.studies.advise.measures import FloatArray
from florets.task.data.tables.description import Description


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
    """What a site said of its training records.

    Attributes
    ----------
    columns
        Of the numeric inputs, and the share of each category as ``column = category``.
    counts
        Records of each class (C,); None for values.
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


def any_unscaled(folder: Path) -> bool:
    """Return whether sites of a run described arrays whose inputs are far from a standard scale."""
    path = folder / DESCRIPTION
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return any(site["scale"] for site in told.values())


def read_sites(folder: Path, train: Mapping[str, FloatArray], is_regression: bool) -> dict[str, Site]:
    """Return what the sites of a run said of their data.

    Parameters
    ----------
    folder
        The run's, with ``description.json`` where sites described tables.
    train
        By site the training records of each class (C,), or number, mean and sum of squares of the targets (3,).
    """
    path = folder / DESCRIPTION
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = {}
    for key in sorted({*told, *train}):
        site = Description.of(told[key]) if key in told else None
        columns = {} if site is None else _columns(site)
        own = train.get(key)
        if own is None:
            found[key] = Site(columns)
        elif is_regression and site is not None and site.target is not None and math.isfinite(site.target.mean):
            # In its unit, where models train on standardised targets.
            target = site.target
            found[key] = Site(columns, None, Moments(target.known, target.mean, target.m2 / target.known))
        elif is_regression:
            found[key] = Site(columns, None, Moments(int(own[0]), float(own[1]), float(own[2] / max(own[0], 1))))
        else:
            found[key] = Site(columns, own)
    return found


def _columns(site: Description) -> dict[str, Moments]:
    found = {}
    for column in site.columns:
        if column.role != "input":
            continue
        if column.kind == "numeric" and math.isfinite(column.mean) and column.known:
            width = column.quantiles[2] - column.quantiles[0] if len(column.quantiles) == 3 else math.nan
            found[column.name] = Moments(column.known, column.mean, column.m2 / column.known, width)
        for category, count in column.categories.items():
            share = count / column.known
            found[f"{column.name} = {category}"] = Moments(column.known, share, share * (1 - share))
    return found


def read_losses(folder: Path) -> dict[str, list[float]]:
    """Return the loss of each model on each client's training records, from a run's ``loss_matrix.csv``."""
    path = folder / "loss_matrix.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["client"]: [float(value) for name, value in row.items() if name.startswith("model_") and value]
        for row in rows
    }


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
    """

    kind: Kind
    groups: tuple[tuple[str, ...], ...]
    lone: tuple[str, ...] = ()
    p_value: float | None = None

    @property
    def num_clients(self) -> int:
        """Clients that were looked at."""
        return sum(map(len, self.groups)) + len(set(self.lone) - {key for group in self.groups for key in group})


def finding_of(evidence: Mapping[str, Any], models: Mapping[str, int], placed: Collection[str] = ()) -> Finding:
    """Return what the evidence of a run's discovery says.

    Parameters
    ----------
    evidence
        The detail of the round that looked for groups.
    models
        Model of each client at the end of the run, where it has one.
    placed
        Clients that took no part in the search: they are in their groups, and none of them is called alone.
    """
    members: dict[int, list[str]] = {}
    for key, model in sorted(models.items()):
        members.setdefault(model, []).append(key)
    groups = tuple(tuple(keys) for _, keys in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))
    verdict, p_value = evidence["verdict"], evidence["p_value"]
    if verdict != "groups":
        everybody = (tuple(sorted(models)),)
        kind: Kind = verdict if verdict in ("none", "all_differ", "open") else "too_few"
        if verdict == "open" and not evidence.get("needed", 1):
            kind = "moving"
        return Finding(kind, everybody, (), p_value)
    searched = [[key for key in keys if key not in placed] for keys in groups]
    lone = tuple(sorted(keys[0] for keys in searched if len(keys) == 1))
    several = sum(len(keys) > 1 for keys in searched) > 1
    return Finding("groups" if several else "lone", groups, lone, p_value)


def finding_in(folder: Path, placed: Collection[str] = ()) -> Finding:
    """Return what a finished run's discovery says; see `finding_of`."""
    lines = read_lines(folder)
    evidence = last_evidence(lines)
    assert evidence is not None
    return finding_of(evidence, read_outcome("discovery", folder).groups, placed)


Part = Literal["test", "validation"]
Tests = Mapping[str, PartStatistics]


@dataclass(frozen=True)
class Outcome:
    """A method's results.

    Attributes
    ----------
    num_bytes, seconds
        Of all rounds, both directions, without the tests; with those of the fine-tuned copies where the method is
        they.
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
    """Read a finished run.

    Parameters
    ----------
    folder
        The run's, with ``clients.csv``, ``rounds.jsonl`` and, if clients send sums of their tests, ``tests.json``.
    tuned
        Take the results of the copies that clients fine-tuned, and what that cost.
    """
    with (folder / "clients.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = read_lines(folder)
    told = read_test_statistics(folder) or {row["client"]: _without_sums(row) for row in rows}
    prefix = "tuned_" if tuned else ""
    tests = 0.0 if tuned else math.fsum(line["seconds"].get("evaluate", 0.0) for line in lines)
    return Outcome(
        name=name,
        test=_part(told, f"{prefix}test"),
        validation=_part(told, f"{prefix}validation"),
        groups={row["client"]: int(row["found_cluster"]) for row in rows if row["found_cluster"]},
        num_bytes=sum(line["bytes_down"] + line["bytes_up"] for line in lines),
        seconds=math.fsum(map(round_seconds, lines)) - tests,
        folder=str(folder),
        rate=rate,
        rounds=len(lines),
        train={key: client.train for key, client in told.items() if client.train is not None},
    )


def read_names(folder: Path) -> dict[str, str]:
    """Return the clients' names in a run's ``clients.csv`` where they have others than their keys."""
    with (folder / "clients.csv").open(newline="", encoding="utf-8") as file:
        return {row["client"]: row["name"] for row in csv.DictReader(file) if row.get("name")}


def _part(told: Mapping[str, TestStatistics], name: str) -> dict[str, PartStatistics]:
    return {key: client.parts[name] for key, client in sorted(told.items()) if name in client.parts}


def _without_sums(row: Mapping[str, str]) -> TestStatistics:
    """Return what ``clients.csv`` says of a client that sends no sums: loss and, of classes, the accuracy."""
    parts = {}
    for prefix in ("", "tuned_"):
        for part in ("test", "validation"):
            if row.get(f"{prefix}{part}_loss"):
                scores = {
                    name: float(row[f"{prefix}{part}_{name}"])
                    for name in ("loss", "accuracy")
                    if row.get(f"{prefix}{part}_{name}")
                }
                parts[f"{prefix}{part}"] = PartStatistics(int(row[f"{part}_examples"]), scores)
    return TestStatistics(parts)
