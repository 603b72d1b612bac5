"""An item of two methods for the tests of `florets reproduce`, and helpers around its runs."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from florets.conf.schema import Config
from florets.engines import engine
from florets.reports.summary import RunSummary
from tests import fake_cells

ITEM = """
title: Two methods on turned digits
source: A paper, Table 3, p. 9
seeds: 3
overrides: [num_rounds=2, checkpoint_every=0]
rows:
  four: {label: 4 rotations, overrides: [k=4, task.num_clusters=4]}
  two: {label: 2 rotations, overrides: [k=2, task.num_clusters=2], seeds: 1, leave_out: [fedavg]}
columns:
  clove: {label: CLoVE & co, overrides: [strategy=clove]}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg]}
measures: [right_k, recovered, rounds_to_ari_90, accuracy, accuracy - fedavg, loss, megabytes]
plot: rows
paper:
  - {source: Table 3, measure: accuracy, values: {four: {clove: 92.5 ± 0.4, fedavg: 71.5 ± 0.25}}}
  - {source: Table 3, measure: rounds_to_ari_90, values: {four: {clove: 8}}}
small: {cut: one seed and one row, seeds: 1, rows: [four]}
"""


def breaks(monkeypatch: pytest.MonkeyPatch, at: int, how: Callable[[], None]) -> None:
    """Let something happen in the middle of the n-th run."""
    real, count = engine.run, iter(range(1, 1000))

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        if next(count) != at:
            return real(config, overrides)
        fake_cells.begin(config, fake_cells.results_folder(config, overrides))
        return how()  # type: ignore[return-value]  # it raises

    monkeypatch.setattr(engine, "run", run)


def interrupt() -> None:
    raise KeyboardInterrupt


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def results(folder: Path, scale: str = "paper") -> Path:
    return folder.parent / "results" / "reproduce" / "item" / scale
