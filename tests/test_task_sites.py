"""Readers of natural sites' records, on tiny files of their forms."""

from pathlib import Path

import numpy as np
import pytest

from florets.task.data import heart_disease, landmine, schools
from tests.public_files import write_fields, write_hospitals, write_schools


def test_hospitals_drop_three_columns_and_patients_with_missing_values(tmp_path: Path) -> None:
    folder = tmp_path / "fed_heart_disease"
    write_hospitals(folder, 10)
    data = heart_disease(tmp_path, 0, 0)
    assert len(data.x_train) + len(data.x_test) == 10 + 11 + 12 + 13
    assert data.input_shape == (13,)
    assert data.owners_train is not None
    assert set(data.owners_train) == {"cleveland", "hungarian", "switzerland", "va"}
    # Of each hospital's two and eight patients without and with the disease 30 % are test data.
    assert sorted(data.y_test[np.asarray(data.owners_test) == "cleveland"]) == [0, 1, 1]
    np.testing.assert_allclose(data.x_train[:, 0].mean(), 0, atol=1e-6)
    assert not np.array_equal(heart_disease(tmp_path, 1, 0).x_test, data.x_test)
    (folder / "processed.va.data").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"processed\.va\.data cannot be read \(it has 2 columns\).*C52P4X"):
        heart_disease(tmp_path, 0, 0)


def test_landmine_is_read_from_matlab_cells(tmp_path: Path) -> None:
    rng, sizes = np.random.default_rng(0), [20 + field for field in range(11)]
    features = [rng.standard_normal((size, 9)) for size in sizes]
    mines = [np.arange(size) % 10 == 0 for size in sizes]
    path = tmp_path / "landmine" / "LandmineData.mat"
    write_fields(path, features, mines)
    found = landmine(tmp_path, 0, 0)
    assert found.owners_train is not None
    assert sorted(set(found.owners_train)) == [f"{field:02}" for field in range(1, 12)]
    # Of each field's 2 or 3 mines one is test data.
    assert int(found.y_test.sum()) == 11
    write_fields(path, [*features[:3], features[3] * np.nan, *features[4:]], mines)
    with pytest.raises(ValueError, match="9 numbers and a label of 0 or 1"):
        landmine(tmp_path, 0, 0)
    write_fields(path, features, [*mines[:3], mines[2], *mines[4:]])
    with pytest.raises(ValueError, match="feature and label are not one of each field"):
        landmine(tmp_path, 0, 0)
    with pytest.raises(ValueError, match=r"has no folder landmine/.*LandmineData\.mat.*version 7"):
        landmine(tmp_path / "nowhere", 0, 0)


def test_schools_targets_are_in_units_of_their_spread(tmp_path: Path) -> None:
    write_schools(tmp_path / "schools_hsb82" / "hsb82.csv", 20, 2)
    data = schools(tmp_path, 0, 0)
    assert (len(data.x_train), len(data.x_test), data.num_outputs) == (14, 6, 1)
    targets = np.concatenate([data.y_train, data.y_test]) * data.target_scale
    assert np.ptp(targets) == pytest.approx(19, abs=1e-4)
    # A column that is the same everywhere stays 0.
    assert not data.x_train[:, 1].any()
