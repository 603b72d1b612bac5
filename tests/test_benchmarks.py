"""Every benchmark can be started: no test runs one, and a function that moves would be missed by nobody."""

import importlib
from pathlib import Path

import pytest

from benchmarks.agreement import florets_side, table

BENCHMARKS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_what_florets_writes_for_another_code_and_the_table_of_differences() -> None:
    ours = florets_side(
        ["experiment=digits_label_skew", "num_clients=5", "num_rounds=2", "first_round=evaluate", "eval_every=9"]
    )
    assert ours["models"].shape[0] == 3
    assert [ours[name].shape for name in ("compared", "assignment", "clusters")] == [(2, 5, 5), (2, 5), (5,)]
    assert ours["shapes"][0].endswith(f"x{ours['x/3'][0].size}")
    theirs = {name: ours[name].copy() for name in ("compared", "assignment", "models")}
    theirs["compared"][0, 0, 1] += 0.5
    theirs["assignment"][1, 2:] += 1
    theirs["models"][2, 0, 7] -= 0.25
    assert table(ours, theirs).splitlines()[2:] == ["| 1 | 5.0e-01 | 0 | 0.0e+00 |", "| 2 | 0.0e+00 | 3 | 2.5e-01 |"]
