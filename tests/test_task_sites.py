"""Readers of natural sites' records, on tiny files of their forms."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from florets.task.data import heart_disease, landmine, parkinsons, schools
from tests.public_files import write_fields, write_hospitals, write_schools, write_voices


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


def test_landmine_is_read_from_matlab_cells_and_from_csv_alike(tmp_path: Path) -> None:
    rng, sizes = np.random.default_rng(0), [20 + field for field in range(11)]
    features = [rng.standard_normal((size, 9)) for size in sizes]
    mines = [(np.arange(size) % 10 == 0).astype(np.uint8)[:, None] for size in sizes]
    cells = {name: np.empty((1, 11), dtype=object) for name in ("feature", "label")}
    for field in range(11):
        cells["feature"][0, field], cells["label"][0, field] = features[field], mines[field]
    savemat(tmp_path / "LandmineData.mat", cells)
    found = landmine(tmp_path, 0, 0)
    write_fields(tmp_path / "other" / "landmine" / "any name.csv", features, [mine[:, 0] for mine in mines])
    other = landmine(tmp_path / "other", 0, 0)
    assert other.owners_train is not None
    assert sorted(set(other.owners_train)) == [f"{field:02}" for field in range(1, 12)]
    np.testing.assert_allclose(found.x_train, other.x_train, rtol=1e-6)
    for name in ("y_train", "y_test", "owners_train", "owners_test"):
        np.testing.assert_array_equal(getattr(found, name), getattr(other, name))
    # Of each field's 2 or 3 mines one is test data.
    assert int(found.y_test.sum()) == 11
    for name, wrong in (("label", mines[3] + 1), ("feature", features[3] * np.nan)):
        right, cells[name][0, 3] = cells[name][0, 3], wrong
        savemat(tmp_path / "LandmineData.mat", cells)
        with pytest.raises(ValueError, match="9 numbers and a label of 0 or 1"):
            landmine(tmp_path, 0, 0)
        cells[name][0, 3] = right
    cells["label"][0, 3] = mines[2]
    savemat(tmp_path / "LandmineData.mat", cells)
    with pytest.raises(ValueError, match="feature and label are not one of each field"):
        landmine(tmp_path, 0, 0)
    with pytest.raises(ValueError, match=r"has no folder landmine/.*LandmineData\.mat.*version 7"):
        landmine(tmp_path / "nowhere", 0, 0)


def test_parkinsons_predicts_either_score_and_keeps_a_day_together(tmp_path: Path) -> None:
    write_voices(tmp_path / "parkinsons_updrs.data", (1, 2, 10), 10)
    data, motor = parkinsons(tmp_path, 0, 0), parkinsons(tmp_path, 0, 0, target="motor_UPDRS")
    assert (data.input_shape, len(data.x_test)) == ((19,), 27)
    assert data.owners_train is not None
    assert sorted(set(data.owners_train)) == ["01", "02", "10"]
    np.testing.assert_allclose([data.y_train.mean(), data.y_train.std()], [0, 1], atol=1e-6)
    # Motor scores tell the day here: no day of a patient is in both parts.
    train, test = (
        {(owner, round(float(y), 3)) for owner, y in zip(owners, ys, strict=True)}
        for owners, ys in ((motor.owners_train, motor.y_train), (motor.owners_test, motor.y_test))
    )
    assert not train & test
    (tmp_path / "parkinsons_updrs.data").write_text("subject#,age\n1,x\n")
    with pytest.raises(ValueError, match=r"it has no 'total_updrs'.*C5ZS3N"):
        parkinsons(tmp_path, 0, 0)


def test_schools_targets_are_in_units_of_their_spread(tmp_path: Path) -> None:
    write_schools(tmp_path / "schools_hsb82" / "hsb82.csv", 20, 2)
    data = schools(tmp_path, 0, 0)
    assert (len(data.x_train), len(data.x_test), data.num_outputs) == (14, 6, 1)
    targets = np.concatenate([data.y_train, data.y_test]) * data.target_scale
    assert np.ptp(targets) == pytest.approx(19, abs=1e-4)
    # A column that is the same everywhere stays 0.
    assert not data.x_train[:, 1].any()
