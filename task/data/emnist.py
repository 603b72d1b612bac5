"""EMNIST: handwritten digits and letters in the form of MNIST."""

from pathlib import Path
from typing import Literal

from florets.task.data.dataset import Dataset
from florets.task.data.idx import read_idx_set
from florets.task.data.pixels import Pixels
from florets.task.data.vision import pool
from florets.task.registry import register_data

CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
_REMEDY = "torchvision's datasets.EMNIST(root='<data_dir>', split='byclass', download=True) fills it."


@register_data("emnist", files=True)
def emnist(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "byclass",
    pooled: bool = False,
) -> Dataset:
    """Load EMNIST: upright images (n, 1, 28, 28), pixels in [0, 1].

    The split ``byclass`` has 697,932 train and 116,323 test images. The files are torchvision's, under
    ``<data_dir>/EMNIST/raw``, gzipped or not. `seed` and `num_clusters` are not used.

    Parameters
    ----------
    data_dir
        Folder that holds ``EMNIST/raw/``.
    split
        ``byclass``: 10 digits, 26 capitals, 26 small letters. ``bymerge``, ``balanced``: capitals and small letters
        of one shape are one class, 47 in all. ``letters``: 26, labels from 0. ``digits``, ``mnist``: 10.
    pooled
        Whether all images are one pool; see `florets.task.data.mnist`.

    Raises
    ------
    ValueError
        If the files are missing or damaged.

    Notes
    -----
    Deviation: the files hold images mirrored along their diagonal, as torchvision gives them; here they are upright.
    """
    names = (f"emnist-{split}-train", f"emnist-{split}-test")
    x_train, y_train, x_test, y_test = read_idx_set("emnist", data_dir, "EMNIST/raw", names, _REMEDY)
    if split == "letters":
        y_train, y_test = y_train - 1, y_test - 1

    train, test = (Pixels(images.transpose(0, 2, 1)[:, None]) for images in (x_train, x_test))
    data = Dataset(train, y_train, test, y_test, num_outputs=CLASSES[split])
    return pool(data) if pooled else data
