"""Public records of natural sites: hospitals and schools, each the owner of its records."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.data.files import PublicFiles
from florets.task.randomness import Purpose, generator

Float64 = NDArray[np.float64]

TEST_SHARE = 0.3
"""Of each owner's records."""
_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_HEART = PublicFiles(
    "heart_disease",
    ("fed_heart_disease", "heart_disease"),
    f"processed.<hospital>.data of {', '.join(_HOSPITALS)}: 14 numbers a line, ? where one is missing",
    "UCI's data set Heart Disease (doi 10.24432/C52P4X) has them.",
)
_SCHOOLS = PublicFiles(
    "schools",
    ("schools_hsb82", "schools"),
    "hsb82.csv with the columns school, minority, female, ses and math",
    "It is Hsb82 of the R package mlmRev, as CSV.",
)


def heart_disease(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load Fed-Heart-Disease: whether patients of four hospitals have a heart disease.

    The owners are the hospitals, with 303, 261, 46 and 130 patients.

    Source: FLamby (NeurIPS 2022): columns 10 to 12 are dropped, then patients with a missing value; chest pain and
    ECG become dummies, which leaves 13 inputs.
    Deviation: FLamby has one fixed split of 66 to 34 %; here the split is drawn with the seed, 70 to 30 %.
    """
    folder = _HEART.folder(data_dir)
    parts = []
    for hospital in _HOSPITALS:
        path = folder / f"processed.{hospital}.data"
        with _HEART.reading(path):
            table = np.genfromtxt(path, delimiter=",", missing_values="?", ndmin=2)
            if table.shape[1:] != (14,):
                raise ValueError(f"it has {table.shape[1]} columns")
        table = np.delete(table, (10, 11, 12), axis=1)
        parts.append(table[np.isfinite(table).all(axis=1)])
    rows = np.concatenate(parts)
    dummies = [rows[:, [column]] == values for column, values in ((2, (2, 3, 4)), (6, (1, 2)))]
    x = np.concatenate([np.delete(rows[:, :10], (2, 6), axis=1), *dummies], axis=1)
    owners = np.repeat(_HOSPITALS, [len(part) for part in parts])
    y = (rows[:, 10] > 0).astype(np.int64)
    return _dataset(x, y, owners, _held_out(owners, y, seed), num_outputs=2)


def schools(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load High School and Beyond: mathematics of 7,185 pupils of 160 schools, from minority, female and ses.

    The owners are the schools. Public and Catholic schools differ in the slope of ses (Raudenbush and Bryk 2002).
    """
    path = _SCHOOLS.folder(data_dir) / "hsb82.csv"
    # Few data sets need it.
    import pandas as pd

    with _SCHOOLS.reading(path):
        table = pd.read_csv(path, skipinitialspace=True, dtype=str)
        numbers = table[["minority", "female", "ses", "math"]].to_numpy(np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("it has numbers that are missing or not finite")
        owners = table["school"].to_numpy(np.str_)
    is_test = _held_out(owners, np.zeros(len(owners)), seed)
    y, group = numbers[:, 3], np.zeros(len(owners), dtype=np.int64)
    # In standard deviations of the training records.
    mean, scale = y[~is_test].mean(), y[~is_test].std() or 1.0
    groups = {"group_train": group[~is_test], "group_test": group[is_test]}
    return _dataset(
        numbers[:, :3], (y - mean) / scale, owners, is_test, num_outputs=1, target_scale=float(scale), **groups
    )


def _held_out(owners: NDArray[np.str_], strata: NDArray[Any], seed: int) -> NDArray[np.bool_]:
    """Return which records are test data: of each owner's records in each stratum the same share, drawn."""
    rng, is_test = generator(seed, 0, Purpose.DATA), np.zeros(len(owners), dtype=bool)
    for owner in np.unique(owners):
        for stratum in np.unique(strata):
            rows = np.flatnonzero((owners == owner) & (strata == stratum))
            is_test[rng.permutation(rows)[: round(TEST_SHARE * len(rows))]] = True
    return is_test


def _dataset(
    x: Float64, y: NDArray[Any], owners: NDArray[np.str_], is_test: NDArray[np.bool_], num_outputs: int, **more: Any
) -> Dataset:
    """Return the records with inputs standardised by the training records of all owners, as sites agree on them."""
    mean, scale = x[~is_test].mean(axis=0), x[~is_test].std(axis=0)
    inputs = ((x - mean) / np.where(scale > 0, scale, 1.0)).astype(np.float32)
    return Dataset(
        inputs[~is_test], y[~is_test], inputs[is_test], y[is_test], num_outputs,
        owners_train=owners[~is_test], owners_test=owners[is_test], **more,
    )  # fmt: skip
