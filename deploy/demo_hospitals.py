"""Five hospitals' tables of one question, scikit-learn's breast cancer data, for `florets advise`.

``python -m florets.deploy.demo_hospitals <folder> [case] [seed]`` writes them. The cases:

- homogeneous: all hospitals draw from the same patients
- labels: two of them write 0 for malignant and 1 for benign, the other three the other way round
- scales: two of them record in inches, the others in centimetres
- noisy: one hospital's diagnoses were shuffled
- units: two of them record three times the others' values in every column
- shifted: at two of them a third of the columns lie one standard deviation higher, as of another zero
- prevalence: at three of them 20 % of the patients are malignant cases, at two of them 60 %
"""

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUM_HOSPITALS = 5
CASES = ("homogeneous", "labels", "scales", "noisy", "units", "shifted", "prevalence")
UNITS = 1 / 2.54
"""Factor of the other units."""
FACTOR = 3.0
"""The same of the case `units`."""
SHARES, SIZE = (0.2, 0.6), 110
"""Of malignant cases, and patients of a hospital, in the case `prevalence`."""


def tables(case: str = "homogeneous", seed: int = 0) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return each hospital's columns (n, 30) and diagnoses (n,), by name.

    The columns are on the scale of reference values that all hospitals were given, mean 0 and deviation 1 over
    everybody: what differs between hospitals is the case's.

    `seed` deals the patients to the hospitals, and shuffles.
    """
    from sklearn.datasets import load_breast_cancer  # slow to import

    if case not in CASES:
        raise ValueError(f"case={case!r} must be one of {', '.join(CASES)}.")
    bunch = load_breast_cancer()
    mean, std = bunch.data.mean(axis=0), bunch.data.std(axis=0)
    rng = np.random.default_rng(seed)
    found = {}
    for number, rows in enumerate(_dealt(bunch.target, case, rng)):
        x, y = bunch.data[rows], bunch.target[rows].astype(np.int64)
        other = number >= NUM_HOSPITALS - 2
        if case == "labels" and other:
            y = 1 - y
        if other:
            x = x * {"scales": UNITS, "units": FACTOR}.get(case, 1.0)
        if case == "shifted" and other:
            x = x + np.where(np.arange(x.shape[1]) % 3 == 0, std, 0.0)
        if case == "noisy" and number == NUM_HOSPITALS - 1:
            y = rng.permutation(y)
        found[f"hospital-{'abcde'[number]}"] = ((x - mean) / std, y)
    return found


def _dealt(target: NDArray[np.int64], case: str, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the rows of each hospital's patients."""
    if case != "prevalence":
        return np.array_split(rng.permutation(len(target)), NUM_HOSPITALS)
    # Class 0 is malignant.
    classes = [rng.permutation(np.flatnonzero(target == label)) for label in (0, 1)]
    dealt, taken = [], [0, 0]
    for number in range(NUM_HOSPITALS):
        malignant = round(SHARES[number >= NUM_HOSPITALS - 2] * SIZE)
        parts = []
        for label, count in enumerate((malignant, SIZE - malignant)):
            parts.append(classes[label][taken[label] : taken[label] + count])
            taken[label] += count
        dealt.append(rng.permutation(np.concatenate(parts)))
    return dealt


def write_folders(root: Path, case: str = "homogeneous", seed: int = 0) -> list[str]:
    """Write a folder with ``data.csv`` for each hospital; return their names."""
    from sklearn.datasets import load_breast_cancer

    names = [str(name).replace(" ", "_") for name in load_breast_cancer().feature_names]
    found = tables(case, seed)
    for hospital, (x, y) in found.items():
        (root / hospital).mkdir(parents=True, exist_ok=True)
        with (root / hospital / "data.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*names, "diagnosis"])
            for row, label in zip(x.tolist(), y.tolist(), strict=True):
                writer.writerow([*(f"{value:.6g}" for value in row), label])
    return list(found)


if __name__ == "__main__":
    folder, case, seed = [*sys.argv[1:], *("homogeneous", "0")[len(sys.argv) - 2 :]]
    print(f"{folder}: {', '.join(write_folders(Path(folder), case, int(seed)))}")
