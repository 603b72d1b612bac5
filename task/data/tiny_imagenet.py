"""Tiny ImageNet: photographs of 200 classes, in the folders that it is published in."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.data.files import folder_of, reading
from florets.task.data.image_pixels import ImageOptions, read_image
from florets.task.data.pixels import Pixels
from florets.task.data.read_images import images_below, is_hidden
from florets.task.data.vision import pool
from florets.task.registry import register_data

_LAYOUT = "train/<class>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt (file, class, box)"
_REMEDY = "http://cs231n.stanford.edu/tiny-imagenet-200.zip unpacks to it."


@register_data("tiny_imagenet", files=True)
def tiny_imagenet(
    data_dir: Path | None, seed: int, num_clusters: int, image_size: int = 64, pooled: bool = False
) -> Dataset:
    """Load Tiny ImageNet: 100,000 train and 10,000 test images (n, 3, 64, 64), pixels in [0, 1].

    The files lie in ``<data_dir>/tiny-imagenet-200``. Classes are in the order of their folders' names. The test set
    is the validation images: those of the published test set have no labels. `seed` and `num_clusters` are not used.

    Parameters
    ----------
    data_dir
        Folder that holds ``tiny-imagenet-200/``.
    image_size
        Pixels in height and width; images of another size are resized.
    pooled
        Whether all images are one pool; see `florets.task.data.mnist`.

    Raises
    ------
    ValueError
        If a file is missing or does not have this form, or an option is out of its range.
    """
    options = ImageOptions(image_size)
    folder = folder_of("tiny_imagenet", data_dir, ("tiny-imagenet-200", "tiny_imagenet"), _LAYOUT, _REMEDY)
    with reading("tiny_imagenet", folder / "train", _LAYOUT, _REMEDY):
        classes = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir() and not is_hidden(path))
    train = [(file, label) for label, name in enumerate(classes) for file in images_below(folder / "train" / name)]
    test = _validation(folder / "val", classes)
    if not (train and test):
        raise ValueError(f"data tiny_imagenet: {folder} has no images. Expected: {_LAYOUT}. {_REMEDY}")
    x_train, x_test = (_pixels([file for file, _ in part], options) for part in (train, test))
    y_train, y_test = (np.array([label for _, label in part], dtype=np.int64) for part in (train, test))
    data = Dataset(x_train, y_train, x_test, y_test, num_outputs=len(classes))
    return pool(data) if pooled else data


def _validation(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the files of the validation images, and their labels."""
    path = folder / "val_annotations.txt"
    labels = {name: label for label, name in enumerate(classes)}
    files = {file.name: file for file in images_below(folder / "images")}
    with reading("tiny_imagenet", path, _LAYOUT, _REMEDY):
        rows = [line.split("\t")[:2] for line in path.read_text(encoding="utf-8").splitlines() if line]
        if wrong := sum(len(row) < 2 or row[0] not in files or row[1] not in labels for row in rows):
            raise ValueError(f"{wrong} of its {len(rows)} lines name no image of val/images/ with a class of train/")
    return [(files[name], labels[label]) for name, label in rows]


def _pixels(files: Sequence[Path], options: ImageOptions) -> Pixels:
    """Return images as bytes: as floats they would take 5 GB."""
    size = options.image_size
    assert size is not None
    found = np.empty((len(files), 3, size, size), dtype=np.uint8)
    for number, file in enumerate(files):
        # On a real node the text reaches the server: it names no file.
        shown = f"data tiny_imagenet: image {number + 1} of {len(files)}, by its class and name,"
        found[number] = np.rint(255 * read_image(file, shown, options).pixels)
    return Pixels(found)
