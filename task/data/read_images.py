"""Samples from one folder of images per class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.inside import file_name
from florets.task.data.samples import Samples, samples

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")


def read_images(path: Path, classes: Sequence[str] | None, image_size: int | None, grayscale: bool) -> Samples:
    """Read ``<path>/<class>/*.png`` (or .jpg, ...), the layout of torchvision's ImageFolder.

    A node need not have images of every class.

    Deviation: Pillow reads them, as it does for torchvision, whose own import would cost 1.4 s of processor time at
    every message.

    Parameters
    ----------
    path
        Folder of the classes' folders.
    classes
        Their names, in the order of their labels.
    image_size, grayscale
        See `florets.task.data.own.own`.

    Returns
    -------
    Samples
        Pixels in [0, 1], (n, channels, height, width).

    Raises
    ------
    ValueError
        If classes are not named, or have names that no folder can have, a folder is none of them, or an image is
        damaged or of another size. On a real node the text reaches the server: it names no folder or file that the
        server has not named.
    """
    if classes is None:
        raise ValueError(
            f"{path}: nodes may have different folders, so that the classes must be named for all of them: set "
            "task.data_options.classes=[<first>,<second>,...]."
        )
    for name in classes:
        file_name("task.data_options.classes", name)
    if unknown := sum(entry.is_dir() and entry.name not in classes for entry in path.iterdir()):
        raise ValueError(
            f"{path}: {unknown} of its folders have names that are none of the classes ({', '.join(classes)}): "
            "rename them, or correct task.data_options.classes."
        )
    pixels: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        files = sorted(entry for entry in (path / name).glob("**/*") if entry.suffix.lower() in SUFFIXES)
        for number, file in enumerate(files, start=1):
            shown = f"{path / name}: image {number} of {len(files)} by name"
            pixels.append(read_image(file, image_size, grayscale, shown))
            labels.append(label)
    if not pixels:
        raise ValueError(f"{path} holds no image: they belong in folders with the classes' names.")
    shapes = sorted({image.shape for image in pixels})
    if len(shapes) > 1:
        raise ValueError(
            f"{path}: images have different sizes, for example {shapes[:2]}: set "
            "task.data_options.image_size=<pixels>."
        )
    return samples(path, np.stack(pixels), np.array(labels, dtype=np.int64))


def read_image(file: Path, image_size: int | None, grayscale: bool, shown: str = "") -> NDArray[np.uint8]:
    """Read the pixels (channels, height, width) of one image, which errors call `shown`, else by its path.

    Raises
    ------
    ValueError
        If it is damaged, or of more pixels than Pillow takes for honest.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"task.data_options.image_size={image_size} must be at least 1.")
    from PIL import Image  # only this form of data needs it

    try:
        with Image.open(file) as opened:
            image = opened.convert("L" if grayscale else "RGB")
    # Pillow raises OSError, SyntaxError, struct's error, DecompressionBombError and more.
    except Exception as error:
        # Their texts may quote the file.
        raise ValueError(f"{shown or file}: the image cannot be read ({type(error).__name__}).") from error
    values = np.asarray(image if image_size is None else image.resize((image_size, image_size)))
    return values[None] if grayscale else values.transpose(2, 0, 1)
