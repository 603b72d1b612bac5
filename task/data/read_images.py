"""Samples from one folder of images per class."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from florets.task.data.dataset import FloatArray
from florets.task.data.image_pixels import ImageOptions, read_image
from florets.task.data.inside import file_name
from florets.task.data.samples import Samples, samples

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")


def read_images(path: Path, classes: Sequence[str] | None, options: ImageOptions) -> Samples:
    """Read ``<path>/<class>/*.png`` (or .jpg, ...), the layout of torchvision's ImageFolder.

    A node need not have images of every class. Hidden files and folders, whose names begin with a dot, are skipped.

    Deviation: Pillow reads them, as it does for torchvision, whose own import would cost 1.4 s of processor time at
    every message.

    Parameters
    ----------
    path
        Folder of the classes' folders.
    classes
        Their names, in the order of their labels.
    options
        How each image is read.

    Returns
    -------
    Samples
        Pixels (n, channels, height, width), in [0, 1] where the files have integers.

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
    folders = [entry.name for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry)]
    if unknown := sum(name not in classes for name in folders):
        raise ValueError(
            f"{path}: {unknown} of its folders have names that are none of the classes ({', '.join(classes)}): "
            "rename them, or correct task.data_options.classes."
        )
    files: list[tuple[Path, str]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = images_below(path / name)
        shown = (f"{path / name}: image {number} of {len(found)} by name" for number in range(1, len(found) + 1))
        files += zip(found, shown, strict=True)
        labels += [label] * len(found)
    if not files:
        raise ValueError(f"{path} holds no image: they belong in folders with the classes' names.")
    pixels, scaled = read_pixels(files, options)
    return replace(samples(path, pixels, np.array(labels, dtype=np.int64)), scaled=scaled)


def read_pixels(files: Sequence[tuple[Path, str]], options: ImageOptions) -> tuple[FloatArray, bool]:
    """Read images of one size, (n, channels, height, width), and whether all were integers that were scaled.

    Parameters
    ----------
    files
        Each with what errors call it; at least one.
    options
        How each is read.

    Raises
    ------
    ValueError
        If one cannot be read, or is of another size than the first.
    """
    first = read_image(*files[0], options)
    pixels, scaled = np.empty((len(files), *first.pixels.shape), dtype=np.float32), first.scaled
    pixels[0] = first.pixels
    for number, (file, shown) in enumerate(files[1:], start=1):
        picture = read_image(file, shown, options)
        if picture.pixels.shape != first.pixels.shape:
            raise ValueError(
                f"{shown}: images have different sizes, and this one not that of the first: set "
                "task.data_options.image_size=<pixels>."
            )
        pixels[number] = picture.pixels
        scaled = scaled and picture.scaled
    return pixels, scaled


def images_below(folder: Path) -> list[Path]:
    """Return the images in a folder and its folders, sorted; none where there is no such folder."""
    found = (file for file in folder.glob("**/*") if file.suffix.lower() in SUFFIXES and not file.is_dir())
    return sorted(file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def is_hidden(path: Path) -> bool:
    """Return whether a file or folder is one that programs keep for themselves: .git, .ipynb_checkpoints, ._0.png."""
    return path.name.startswith(".")
