"""An item of two methods whose runs do no work, and what they were."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from florets.conf.schema import Config
from florets.engines import engine
from florets.reports.summary import RunSummary
from tests import fake_cells
from tests.reproduce_item import ITEM


@pytest.fixture
def item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "item.yaml").write_text(ITEM)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "item.yaml"


@pytest.fixture(autouse=True)
def no_plot(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out the plot, which takes longer than runs that do no work, unless the test is marked `pictures`."""
    if request.node.get_closest_marker("pictures") is None:
        monkeypatch.setattr("florets.papers.plot.draw", lambda *_: [])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Strategy, K and seed of each run that was begun, in order; runs do no work."""
    begun: list[tuple[str, int, int]] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        begun.append((config.strategy.name, config.task.num_clusters, config.seed))
        return fake_cells.run(config, overrides)

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(engine, "resume", fake_cells.resume)
    return begun
