"""``python -m tests.page_data`` writes files of a reader's own that the pages' commands name."""

import csv
from pathlib import Path

import numpy as np

from florets.task.data.digits import digits


def write(folder: Path) -> None:
    """Write mine.npz, images of digits with their labels, and new.csv, the same as rows of pixels."""
    data = digits(None, seed=0, num_clusters=1)
    x, y = data.x_test[:20], data.y_test[:20]
    np.savez(folder / "mine.npz", x=x, y=y)
    with (folder / "new.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(f"pixel{number}" for number in range(64))
        writer.writerows(x.reshape(len(x), -1).tolist())


if __name__ == "__main__":
    write(Path())
