"""The results of one method on every client, read from its run's folder."""

import csv
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from florets.server_app.results.summary import round_seconds

Metric = Literal["accuracy", "loss"]
Part = Literal["test", "validation"]


@dataclass(frozen=True)
class Figure:
    """A client's result on some records that nobody has trained on: accuracy in 0..1, or mean loss."""

    value: float
    records: int


@dataclass(frozen=True)
class Outcome:
    """A method's results.

    Attributes
    ----------
    name
        One of `methods.TITLES`.
    metric
        "accuracy" where all clients have one, else "loss".
    test, validation
        By client.
    groups
        Model of each client that has one.
    num_bytes, seconds
        Of all rounds, both directions, without the tests; with those of the fine-tuned copies where the method is
        they.
    """

    name: str
    metric: Metric
    test: dict[str, Figure]
    validation: dict[str, Figure]
    groups: dict[str, int]
    num_bytes: int
    seconds: float
    folder: str

    @property
    def mean(self) -> float:
        """Unweighted mean over clients on the test records; NaN without any."""
        return mean(self.test)

    def without(self, clients: Collection[str]) -> "Outcome":
        """Return the results without those of some clients."""
        test, validation = (
            {key: figure for key, figure in figures.items() if key not in clients}
            for figures in (self.test, self.validation)
        )
        return replace(self, test=test, validation=validation)

    @property
    def worst(self) -> tuple[str, Figure] | None:
        """The client with the lowest accuracy, or the highest loss."""
        if not self.test:
            return None
        sign = 1 if self.metric == "accuracy" else -1
        return min(self.test.items(), key=lambda item: (sign * item[1].value, item[0]))


def mean(figures: Mapping[str, Figure]) -> float:
    """Return the unweighted mean over clients; NaN without any."""
    return math.fsum(figure.value for figure in figures.values()) / len(figures) if figures else math.nan


def read_outcome(name: str, folder: Path, tuned: bool = False) -> Outcome:
    """Read a finished run.

    Parameters
    ----------
    name
        The method's.
    folder
        The run's, with ``clients.csv`` and ``rounds.jsonl``.
    tuned
        Take the results of the copies that clients fine-tuned, and what that cost.
    """
    with (folder / "clients.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    prefix = "tuned_" if tuned else ""
    tested = [row for row in rows if row.get(f"{prefix}test_loss")]
    metric: Metric = "accuracy" if tested and all(row[f"{prefix}test_accuracy"] for row in tested) else "loss"
    tests = 0.0 if tuned else math.fsum(line["seconds"].get("evaluate", 0.0) for line in lines)
    return Outcome(
        name=name,
        metric=metric,
        test=_figures(tested, prefix, "test", metric),
        validation=_figures(tested, prefix, "validation", metric),
        groups={row["client"]: int(row["found_cluster"]) for row in rows if row["found_cluster"]},
        num_bytes=sum(line["bytes_down"] + line["bytes_up"] for line in lines),
        seconds=math.fsum(map(round_seconds, lines)) - tests,
        folder=str(folder),
    )


def _figures(rows: list[dict[str, str]], prefix: str, part: Part, metric: Metric) -> dict[str, Figure]:
    return {
        row["client"]: Figure(float(row[f"{prefix}{part}_{metric}"]), int(row[f"{part}_examples"]))
        for row in rows
        if row.get(f"{prefix}{part}_{metric}")
    }
