"""The results of one method on every client, read from its run's folder."""

import csv
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from florets.reports.pooled import (
    PartStatistics,
    TestStatistics,
    read_test_statistics,
)
from florets.reports.summary import read_lines, round_seconds
from florets.server_app.advise.measures import FloatArray

Part = Literal["test", "validation"]
Tests = Mapping[str, PartStatistics]


@dataclass(frozen=True)
class Outcome:
    """A method's results.

    Attributes
    ----------
    name
        One of `methods.TITLES`.
    test, validation
        By client, of those with a result.
    groups
        Model of each client that has one.
    num_bytes, seconds
        Of all rounds, both directions, without the tests; with those of the fine-tuned copies where the method is
        they.
    rate
        The learning rate.
    rounds
        Rounds of the run.
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
    name
        The method's.
    folder
        The run's, with ``clients.csv``, ``rounds.jsonl`` and, if clients send sums of their tests, ``tests.json``.
    rate
        The learning rate of the run.
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
