"""The protocol of a tracker: its three methods, and what they are given."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from florets.reports.folder import write_whole
from florets.reports.summary import RoundLine, RunSummary

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
    sweep
        Folder of the sweep that the run is a job of.
    """

    folder: Path
    results_dir: Path
    name: str
    experiment: str
    params: Mapping[str, Any]
    num_rounds: int
    done_rounds: int = 0
    sweep: Path | None = None

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
    """What a run calls as it goes on; whatever an implementation raises, the run goes on without it."""

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
