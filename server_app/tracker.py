"""The protocol of a tracker: its three methods, and what they are given."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from florets.reports.folder import write_whole
from florets.reports.scores import FIGURES, scores_of
from florets.reports.summary import RoundLine, RunSummary, round_seconds
from florets.strategies.base.report import RoundReport

IDS = "trackers.json"
"""File of a run's folder with the ids under which trackers know the run: it goes on under the same ones."""

ClientFigures = Mapping[str, Mapping[str, float]]
"""By client key: ``cluster`` (index of its model) and, in rounds with evaluation, its scores by name."""


@dataclass(frozen=True)
class RunStart:
    """A run that begins or goes on.

    Attributes
    ----------
    folder
        The run's own folder.
    results_dir
        Folder of all results, where trackers have their stores by default.
    name
        The run's folder relative to `results_dir`, such as ``quickstart/clove/seed-0``.
    experiment
        Name of the preset.
    params
        The whole configuration, by dotted keys.
    num_rounds
        Rounds that the run has in all.
    done_rounds
        Rounds that were run before: the next one is `done_rounds` + 1. 0 for a new run.
    """

    folder: Path
    results_dir: Path
    name: str
    experiment: str
    params: Mapping[str, Any]
    num_rounds: int
    done_rounds: int = 0

    def recall(self, tracker: str) -> str | None:
        """Return the id that a tracker left before the run was interrupted, None where there is none."""
        return read_ids(self.folder).get(tracker)

    def remember(self, tracker: str, run_id: str) -> None:
        """Keep an id in the run's folder, for the run to go on under it."""
        write_id(self.folder, tracker, run_id)


@dataclass(frozen=True)
class RunEnd:
    """A run that has finished, failed or was interrupted.

    Attributes
    ----------
    summary
        The headline figures; None where the run ended early.
    error
        Why it ended early.
    files
        The report, the pictures and the tables that the run left.
    """

    summary: RunSummary | None
    error: BaseException | None = None
    files: Sequence[Path] = field(default=())


class Tracker(Protocol):
    """What a run calls as it goes on; whatever an implementation raises, the run continues without it."""

    def on_start(self, run: RunStart) -> None:
        """Begin, before the first round."""

    def on_round(self, line: RoundLine, clients: ClientFigures) -> None:
        """Take a finished round: its line of ``rounds.jsonl`` and the figures of every client."""

    def on_end(self, end: RunEnd) -> None:
        """Close, also where the run fails or is interrupted."""


def read_ids(folder: Path) -> dict[str, str]:
    """Return the ids that trackers left in a folder; none where the file is missing or damaged."""
    try:
        found = json.loads((folder / IDS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(run_id) for name, run_id in found.items()} if isinstance(found, dict) else {}


def write_id(folder: Path, tracker: str, run_id: str) -> None:
    """Keep the id of a tracker in a folder, in addition to those of others."""
    write_whole(folder / IDS, json.dumps({**read_ids(folder), tracker: run_id}, indent=1) + "\n")


MOST_CLIENTS = 100
"""With more clients than this only figures over them (quantiles) are logged, and no curves of single clients."""


def round_figures(line: RoundLine) -> dict[str, float]:
    """Return the figures of a round that are known, by name: ``ari``, ``seconds/train``, ``scores/loss/q90``, ..."""
    named: dict[str, float | None] = {name: value for name, value in line.items() if isinstance(value, int | float)}
    named |= {"rejected": len(line["rejected"]), "seconds": round_seconds(line)}
    named |= {f"seconds/{part}": seconds for part, seconds in line["seconds"].items() if part != "total"}
    named |= {f"replies/{kind}": number for kind, number in line["replies"].items()}
    named |= {
        f"scores/{score}/{name}": figures[name] for score, figures in line["metrics"].items() for name in FIGURES
    }
    return {name: float(value) for name, value in named.items() if value is not None}


def final_figures(summary: RunSummary) -> dict[str, float]:
    """Return the figures at the end of a run that are numbers: ``final/accuracy``, ``final/bytes_down``, ..."""
    return {
        f"final/{name.removeprefix('final_')}": float(value)
        for name, value in vars(summary).items()
        if isinstance(value, int | float) and name not in ("seed", "rounds")
    }


def client_figures(report: RoundReport) -> ClientFigures:
    """Return the figures of each client that has a model or was tested in a round."""
    found: dict[str, dict[str, float]] = {key: {"cluster": model} for key, model in report.assignment.items()}
    for key, evaluation in report.evaluations.items():
        figures = found.setdefault(key, {})
        figures |= scores_of(evaluation)
        for prefix, other in (("validation", evaluation.validation), ("tuned", evaluation.tuned)):
            if other is not None:
                figures |= {f"{prefix}_{name}": value for name, value in scores_of(other).items()}
    return found


def curves(clients: ClientFigures) -> dict[str, float]:
    """Return each client's figures as ``clients/<key>/<figure>``; none for more than `MOST_CLIENTS` clients."""
    if len(clients) > MOST_CLIENTS:
        return {}
    return {f"clients/{_safe(key)}/{name}": value for key, of in clients.items() for name, value in of.items()}


def _safe(key: str) -> str:
    """Return a client's key as a part of a name; other machines choose it, and stores take few characters."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", key)
    return safe if safe == key else f"{safe[:80]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def short_text(value: Any) -> str:
    """Return the value of a parameter as a text of bounded length."""
    text = str(value)
    return text if len(text) <= 500 else f"{text[:499]}…"


def as_param(value: Any) -> bool | int | float | str:
    """Return the value of a parameter as stores take it: numbers and truth values as they are, the rest as text."""
    return value if isinstance(value, bool | int | float) else short_text(value)


def params(values: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return parameters by name, each as `as_param`; what is null or empty is left out."""
    return {name: as_param(value) for name, value in values.items() if value not in (None, "", [], {})}
