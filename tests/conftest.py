"""Shared settings: one thread per process, draws that are the same in every run, and no pictures."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from florets.engines.flower_processes import past_proxies

# Tests ask servers of their own on this machine.
os.environ.update(past_proxies(os.environ))

# The same examples in every run: what fails here fails everywhere. HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let `-n` give each process neighbouring files whole, as far as that keeps all busy.

    xdist's own default deals the tests of a file out, and what they share is then made in every process.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(autouse=True)
def own_draws() -> Iterator[None]:
    """Begin each test with the same draws of PyTorch's global generator, of which new layers have their weights.

    PyTorch seeds it at random; what it was is there again after the test.
    """
    torch = sys.modules.get("torch")
    state = None if torch is None else torch.get_rng_state()
    if torch is not None:
        torch.default_generator.manual_seed(0)
    yield
    if torch is not None:
        torch.set_rng_state(state)


@pytest.fixture(autouse=True)
def no_module_counts_as_edited() -> Iterator[None]:
    """Forget the modules that a test has named: from another folder they would look edited, and be imported anew."""
    yield
    if (edited := sys.modules.get("florets.task.edited_modules")) is not None:
        edited._noted.clear()
        edited._paths.clear()


@pytest.fixture
def conf_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of conf/ that presets are read from."""
    from florets.conf import presets  # OmegaConf takes a moment that most tests need not spend

    for path in presets.CONFIG_DIR.rglob("*.yaml"):
        target = tmp_path / "conf" / path.relative_to(presets.CONFIG_DIR)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    monkeypatch.setattr(presets, "CONFIG_DIR", tmp_path / "conf")
    return tmp_path / "conf"


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out what takes most of a small run's time, unless the test is marked `pictures`."""
    if request.node.get_closest_marker("pictures") is None:
        monkeypatch.setattr("florets.reports.run_page.draw_plots", lambda *_: {})
        monkeypatch.setattr("florets.studies.sweep.report._draw", lambda *_: None)
