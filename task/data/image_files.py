"""Image files: the pixels of one as float32 numbers, and samples from one folder of images per class."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from florets.task.data.dataset import FloatArray
from florets.task.data.files import file_name
from florets.task.data.samples import Samples, samples

if TYPE_CHECKING:
    from PIL.Image import Image

# What the suffixes promise. Pillow decides by content, and would hand others (EPS) to external programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
# Of TIFF: the tag of what 0 stands for, and its value where that is white.
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0


@dataclass(frozen=True)
class ImageOptions:
    """How images are read; `florets.task.data.own.own` says what each option means."""

    image_size: int | None = None
    grayscale: bool = False

    def __post_init__(self) -> None:
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(f"task.data_options.image_size={self.image_size} must be at least 1.")


def read_image(file: Path, shown: str, options: ImageOptions) -> FloatArray:
    """Read the pixels (channels, height, width) of one image, in [0, 1].

    Integers of 8 bits are divided by 255, grey values of 16 by 65535; of colours of 16 bits Pillow reads the upper 8.
    What is transparent is laid on white, the orientation in the EXIF data is applied, and palettes, CMYK and the like
    become RGB or grey.
    """
    # Only this form of data needs it.
    from PIL import Image, ImageOps

    try:
        # Not by its path: Pillow 13 maps such a file into memory, and scrambles a TIFF that is to be turned.
        with file.open("rb") as stream, Image.open(stream, formats=_FORMATS) as opened:
            frames = int(getattr(opened, "n_frames", 1))
            inverted = getattr(opened, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO
            image = ImageOps.exif_transpose(opened)
            is_wide = image.mode in ("F", "I") or image.mode.startswith("I;16")
            pixels = None if is_wide else _bytes(image, options)
    # Pillow raises OSError, SyntaxError, struct's error, DecompressionBombError and more.
    except Exception as error:
        # Their texts may quote the file.
        raise ValueError(f"{shown}: the image cannot be read ({type(error).__name__}).") from error
    if frames > 1:
        raise ValueError(f"{shown}: has {frames} pages or frames, and an input has only one: save each as a file.")
    if pixels is not None:
        return pixels
    if image.mode in ("F", "I") or inverted or "transparency" in image.info:
        raise ValueError(
            f"{shown}: grey values of more than 8 bits are read as integers of 16, from black to white and without "
            "transparency: save it so, or give an archive of arrays."
        )
    values: FloatArray = (np.asarray(image) / 65535.0).astype(np.float32)
    if options.image_size is not None:
        # As floats: Pillow would resize 16 bits by the nearest pixel; edges overshoot, as those of 8 bits do.
        resized = Image.fromarray(values).resize((options.image_size, options.image_size))
        values = np.asarray(resized).clip(0, 1)
    return np.repeat(values[None], 1 if options.grayscale else 3, axis=0)


def _bytes(image: "Image", options: ImageOptions) -> FloatArray:
    """Return the pixels of an image of at most 8 bits a channel."""
    from PIL import Image

    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if options.grayscale else "RGB")
    if options.image_size is not None:
        image = image.resize((options.image_size, options.image_size))
    values = np.asarray(image, dtype=np.float32) / np.float32(255)
    return values[None] if options.grayscale else values.transpose(2, 0, 1)


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")


def read_images(path: Path, classes: Sequence[str] | None, options: ImageOptions) -> Samples:
    """Read ``<path>/<class>/*.png`` (or .jpg, ...), the layout of torchvision's ImageFolder.

    Deviation: Pillow reads them, as it does for torchvision, whose own import would cost 1.4 s at every message.
    """
    if classes is None:
        raise ValueError(f"{path}: the classes must be named for all of them, task.data_options.classes.")
    for name in classes:
        file_name("task.data_options.classes", name)
    folders = [entry.name for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry)]
    if unknown := sum(name not in classes for name in folders):
        raise ValueError(
            f"{path}: {unknown} of its folders are not named after any class ({', '.join(classes)}): "
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
    pixels = read_pixels(files, options)
    return replace(samples(path, pixels, np.array(labels, dtype=np.int64)), scaled=True)


def read_pixels(files: Sequence[tuple[Path, str]], options: ImageOptions) -> FloatArray:
    """Read images of one size, (n, channels, height, width)."""
    first = read_image(*files[0], options)
    pixels = np.empty((len(files), *first.shape), dtype=np.float32)
    pixels[0] = first
    for number, (file, shown) in enumerate(files[1:], start=1):
        found = read_image(file, shown, options)
        if found.shape != first.shape:
            raise ValueError(f"{shown}: this image differs in size from the first: set task.data_options.image_size.")
        pixels[number] = found
    return pixels


def images_below(folder: Path) -> list[Path]:
    """Return the images in a folder and its folders, sorted; none where there is no such folder."""
    found = (file for file in folder.glob("**/*") if file.suffix.lower() in SUFFIXES and not file.is_dir())
    return sorted(file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def is_hidden(path: Path) -> bool:
    """Return whether a file or folder is one that programs keep for themselves: .git, .ipynb_checkpoints, ._0.png."""
    return path.name.startswith(".")
