"""Data folders of the demonstration's nodes, in several forms; half of them see digits upside down."""

import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.public_images import digits

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

TEST_SHARE = 0.25


def _whole_npz(folder: Path, images: Images, labels: Labels) -> None:
    np.savez(folder / "data.npz", x=images[:, None], y=labels)


def _image_folders(folder: Path, images: Images, labels: Labels) -> None:
    from PIL import Image  # comes with torchvision; only this form needs it

    cut = round(TEST_SHARE * len(images))
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / ("test" if number < cut else "train") / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")


def _npz_parts(folder: Path, images: Images, labels: Labels) -> None:
    cut = round(TEST_SHARE * len(images))
    np.savez(folder / "test.npz", x=images[:cut, None], y=labels[:cut])
    np.savez(folder / "train.npz", x=images[cut:, None], y=labels[cut:])


FORMS: dict[str, Callable[[Path, Images, Labels], None]] = {
    "archive": _whole_npz,
    "pictures": _image_folders,
    "archives": _npz_parts,
}


def write_folders(root: Path, num_nodes: int = 4) -> dict[str, int]:
    """Write one data folder for each node, in the forms by turns, and return the true cluster of each, by name."""
    data = digits(None, seed=0, num_clusters=1)
    # Bytes, as image files hold them.
    images = np.round(255 * np.concatenate([data.x_train, data.x_test])[:, 0]).astype(np.uint8)
    labels = np.concatenate([data.y_train, data.y_test])
    clusters = {}
    order = np.random.default_rng(0).permutation(len(images))
    for number, (rows, form) in enumerate(zip(np.array_split(order, num_nodes), cycle(FORMS), strict=False)):
        name, cluster = f"{form}-{number + 1}", number * 2 // num_nodes
        turned = np.rot90(images[rows], 2 * cluster, axes=(1, 2))
        (root / name).mkdir(parents=True)
        FORMS[form](root / name, np.ascontiguousarray(turned), labels[rows])
        clusters[name] = cluster
    return clusters


if __name__ == "__main__":
    for written, true_cluster in write_folders(Path(sys.argv[1])).items():
        print(f"{Path(sys.argv[1]) / written}: true-cluster {true_cluster}")
