"""Every benchmark can be started: no test runs one, and a function that moves would be missed by nobody."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__
