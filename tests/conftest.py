"""Shared settings: one thread per process, and the folder of real data where there is one."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

DATA_DIR = Path(os.environ.get("FLORETS_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture
def mnist_dir() -> Path:
    """Folder with MNIST; the test skips where it is missing."""
    if not (DATA_DIR / "MNIST" / "raw").is_dir():
        pytest.skip(f"no MNIST in {DATA_DIR}; set FLORETS_DATA to a torchvision data folder")
    return DATA_DIR


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out what takes most of a small run's time, unless the test is marked `pictures`."""
    if request.node.get_closest_marker("pictures") is None:
        nothing = {"curves": None, "heatmap": None, "discovery": None}
        monkeypatch.setattr("florets.server_app.results.report.draw_plots", lambda *_: nothing)
