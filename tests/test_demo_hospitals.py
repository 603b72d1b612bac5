"""The demonstration's hospitals: they differ as their case says, and their folders are a federation of tables."""

from pathlib import Path

import numpy as np
import pytest

from florets.deploy.demo_hospitals import CASES, tables, write_folders
from florets.task.data.own import own


def test_the_hospitals_differ_as_their_case_says_and_in_nothing_else() -> None:
    plain = tables("homogeneous", 3)
    dealt_alike = [case for case in CASES if case != "prevalence"]
    for case in dealt_alike:
        found = tables(case, 3)
        same_x = [np.array_equal(found[name][0], plain[name][0]) for name in plain]
        same_y = [np.array_equal(found[name][1], plain[name][1]) for name in plain]
        assert same_x == [True] * 3 + [case not in ("scales", "units", "shifted")] * 2
        assert same_y == [True] * 3 + [case != "labels", case not in ("labels", "noisy")]
    flipped = tables("labels", 3)["hospital-e"][1]
    np.testing.assert_array_equal(flipped, 1 - plain["hospital-e"][1])
    assert tables("noisy", 3)["hospital-e"][1].sum() == plain["hospital-e"][1].sum()
    shares = [round(1 - y.mean(), 2) for _, y in tables("prevalence", 3).values()]
    assert shares == [0.2, 0.2, 0.2, 0.6, 0.6]
    with pytest.raises(ValueError, match="case='other' must be one of homogeneous, labels, scales, noisy"):
        tables("other")


def test_their_folders_are_tables_of_thirty_columns(tmp_path: Path) -> None:
    names = write_folders(tmp_path, "scales", 3)
    data = own(tmp_path / names[4], 0, 0)
    assert data.input_shape == (30,)
    np.testing.assert_allclose(data.x_train.std(axis=0), np.ones(30), atol=1e-4)
