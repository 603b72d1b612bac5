"""A run of four clients in two true clusters, small enough for every figure to be worked out by hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from florets.reports.summary import RunSummary, summarise
from florets.server_app.recorder import Recorder
from florets.strategies.base.report import Client, RoundReport
from florets.task.tested import Evaluation

TRUTH = {"00": 0, "01": 0, "02": 1, "03": 1}
CLIENTS = [Client(key, 1000 + n, n, 100 + n, TRUTH[key], "cpu") for n, key in enumerate(TRUTH)]
FOUND = {"00": 1, "01": 1, "02": 0, "03": 0}
"""The true clusters, under other numbers."""
MIXED = {"00": 0, "01": 0, "02": 0, "03": 1}
"""One pair of the same cluster is together, one apart, two pairs of different clusters are together: ARI 0."""
ACCURACIES = {"00": 0.5, "01": 0.75, "02": 1.0, "03": 0.75}
"""Mean 0.75, population standard deviation sqrt(1/32)."""


NO_ROUNDS = summarise([], experiment="tiny", strategy="clove", seed=0, folder="nowhere")
"""The summary of a run of no rounds; what a test wants to know of a run it replaces."""


def evaluations(accuracies: Mapping[str, float | None] = ACCURACIES, loss: float = 0.25) -> dict[str, Evaluation]:
    return {key: Evaluation(20, loss, accuracy) for key, accuracy in accuracies.items()}


def report(server_round: int, **changes: Any) -> RoundReport:
    values: dict[str, Any] = {
        "server_round": server_round,
        "phase": "clustering",
        "participants": tuple(TRUTH),
        "assignment": FOUND,
        "num_clusters": 2,
        "stable": False,
        "bytes_down": 3000,
        "bytes_up": 1000,
        "seconds": {"losses": 0.2, "train": 0.5, "total": 1.0},
        "replies": {"ok": 8, "error": 0, "missing": 0, "invalid": 0},
        "train_loss": 0.5,
        "evaluations": evaluations(),
    }
    return RoundReport(**{**values, **changes})


def record(folder: Path, seed: int = 0, strategy: str = "clove", **changes: Any) -> RunSummary:
    """Run three rounds: a mixed clustering, the right one, and the right one frozen."""
    with Recorder(folder, "k: 2\n", "tiny", strategy, seed, 3, quiet=True, task_title="Four clients") as recorder:
        recorder.clients(CLIENTS)
        recorder.round(report(1, assignment=MIXED, **changes))
        recorder.round(report(2, **changes))
        recorder.round(report(3, phase="stable", stable=True, **changes))
        models = {"0/w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "1/n": np.array(7)}
        losses = np.array([[2.0, 0.1], [2.5, 0.2], [0.1, 3.0], [0.3, 2.0]])
        return recorder.finish(models, changes.get("evaluations", evaluations()), FOUND, (list(TRUTH), losses))
