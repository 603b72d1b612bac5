"""Samples from one folder of images per class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from task.data.samples import Samples, samples
from task.data.vision import torchvision_datasets


def read_images(path: Path, classes: Sequence[str] | None, image_size: int | None, grayscale: bool) -> Samples:
    """Read ``<path>/<class>/*.png`` (or .jpg, ...) through torchvision's ImageFolder.

    A node need not have images of every class.

    Parameters
    ----------
    path
        Folder of the classes' folders.
    classes
        Their names, in the order of their labels.
    image_size, grayscale
        See `task.data.own.own`.

    Returns
    -------
    Samples
        Pixels in [0, 1], (n, channels, height, width).

    Raises
    ------
    ValueError
        If classes are not named, a folder is none of them, or an image is damaged or of another size.
    """
    if classes is None:
        raise ValueError(
            f"{path}: nodes may have different folders, so that the classes must be named for all of them: set "
            "task.data_options.classes=[<first>,<second>,...]."
        )
    if image_size is not None and image_size < 1:
        raise ValueError(f"task.data_options.image_size={image_size} must be at least 1.")
    unknown = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and entry.name not in classes)
    if unknown:
        raise ValueError(
            f"{path}: the folder {unknown[0]!r} is none of the classes ({', '.join(classes)}): rename it, or correct "
            "task.data_options.classes."
        )
    mode = "L" if grayscale else "RGB"

    def pixels(image: Any) -> NDArray[np.uint8]:
        converted = image.convert(mode)
        return np.asarray(converted if image_size is None else converted.resize((image_size, image_size)))

    there = [name for name in classes if (path / name).is_dir()]
    label_of = {name: label for label, name in enumerate(classes)}
    folders = torchvision_datasets()

    class AgreedFolder(folders.ImageFolder):  # type: ignore[misc, name-defined]  # imported when first needed
        """An ImageFolder whose labels are the federation's and not this folder's own."""

        def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
            return there, {name: label_of[name] for name in there}

    try:
        pairs = list(AgreedFolder(str(path), transform=pixels, allow_empty=True))
    except OSError as error:
        raise ValueError(f"{path}: an image cannot be read ({error}).") from error
    if not pairs:
        raise ValueError(f"{path} holds no image: they belong in folders with the classes' names.")
    shapes = {image.shape for image, _ in pairs}
    if len(shapes) > 1:
        raise ValueError(
            f"{path}: images have different sizes, for example {sorted(shapes)[:2]}: set "
            "task.data_options.image_size=<pixels>."
        )
    images = np.stack([image for image, _ in pairs])
    images = images[:, None] if grayscale else images.transpose(0, 3, 1, 2)
    return samples(path, images, np.array([label for _, label in pairs], dtype=np.int64))
