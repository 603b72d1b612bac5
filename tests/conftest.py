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


@pytest.fixture
def conf_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of conf/ that presets are read from."""
    from florets.conf import compose  # Hydra takes a moment that most tests need not spend

    for path in compose.CONFIG_DIR.rglob("*.yaml"):
        target = tmp_path / "conf" / path.relative_to(compose.CONFIG_DIR)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    monkeypatch.setattr(compose, "CONFIG_DIR", tmp_path / "conf")
    return tmp_path / "conf"


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out what takes most of a small run's time, unless the test is marked `pictures`."""
    if request.node.get_closest_marker("pictures") is None:
        nothing = {"curves": None, "heatmap": None, "discovery": None}
        monkeypatch.setattr("florets.server_app.results.report.draw_plots", lambda *_: nothing)
