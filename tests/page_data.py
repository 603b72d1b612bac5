"""``python -m tests.page_data`` writes files of a reader's own that the pages' commands name."""

from pathlib import Path

import numpy as np

from florets.task.data.public_images import digits


def write(folder: Path) -> None:
    """Write mine.npz, images of digits with their labels, and new.npz, the same without labels."""
    data = digits(None, seed=0, num_clusters=1)
    x, y = data.x_test[:20], data.y_test[:20]
    np.savez(folder / "mine.npz", x=x, y=y)
    np.savez(folder / "new.npz", x=x)


if __name__ == "__main__":
    write(Path())
