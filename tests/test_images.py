"""Images: the same pixels in files of another type are the same inputs, and what would be misread is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from florets.task.data.image_files import ImageOptions, read_image
from florets.task.data.new_data import Form, read_new
from florets.task.data.own import own

RAMP = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
GREY = ImageOptions(grayscale=True)


def grey(file: Path, **options) -> np.ndarray:
    return read(file, ImageOptions(grayscale=True, **options))[0]


def read(file: Path, options: ImageOptions) -> np.ndarray:
    return read_image(file, str(file), options)


def save(folder: Path, name: str, image: Image.Image, **how) -> Path:
    image.save(folder / name, **how)
    return folder / name


def tiff(file: Path, pixels: bytes, bits: int, sample_format: int = 1, photometric: int = 1, side: int = 2) -> Path:
    """Write a TIFF of one channel, side x side, in types that Pillow does not write."""
    tags = [(256, side), (257, side), (258, bits), (259, 1), (262, photometric), (273, 8), (277, 1), (278, side)]
    tags += [(279, len(pixels)), (339, sample_format)]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    file.write_bytes(struct.pack("<2sHI", b"II", 42, 8 + len(pixels)) + pixels + directory + struct.pack("<I", 0))
    return file


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("size", [None, 5])
def test_16_bits_equal_their_twin_of_8(tmp_path, suffix, size):
    wide = save(tmp_path, f"wide{suffix}", Image.fromarray(RAMP.astype(np.uint16) * 257))
    twin = save(tmp_path, "twin.png", Image.fromarray(RAMP))
    found = grey(wide, image_size=size)
    np.testing.assert_allclose(found, grey(twin, image_size=size), atol=1 / 255)
    assert len(np.unique(found)) > 20
    # Without grayscale, three equal channels.
    assert np.array_equal(read(wide, ImageOptions(image_size=size)), np.stack([found] * 3))


@pytest.mark.parametrize(
    ("pixels", "how"),
    [
        (np.array([0, 1, 2**31, 2**32 - 1], "<u4"), {"bits": 32}),
        (np.array([0, 1, -1, 2**15 - 1], "<i2"), {"bits": 16, "sample_format": 2}),
        (np.array([0, 1, 2**15, 2**16 - 1], "<u2"), {"bits": 16, "photometric": 0}),
        (np.array([-3.5, 0, 1, 1e6], "<f4"), {"bits": 32, "sample_format": 3}),
    ],
)
def test_other_numbers_than_integers_from_black_to_white_are_refused(tmp_path, pixels, how):
    with pytest.raises(ValueError, match="are read as integers of 16, from black to white"):
        grey(tiff(tmp_path / "1.tif", pixels.tobytes(), **how))


def test_what_is_transparent_is_laid_on_white(tmp_path):
    drawing = np.zeros((8, 8, 4), dtype=np.uint8)
    drawing[..., 3] = RAMP
    expected = 1 - RAMP / 255
    file = save(tmp_path, "1.png", Image.fromarray(drawing))
    np.testing.assert_allclose(grey(file), expected, atol=1 / 255)
    np.testing.assert_allclose(read(file, ImageOptions()), np.stack([expected] * 3), atol=1 / 255)
    np.testing.assert_allclose(
        grey(save(tmp_path, "2.png", Image.fromarray(drawing).convert("LA"))), expected, atol=1 / 255
    )
    # A colour, a grey value or an index that stands for transparent.
    one = save(tmp_path, "3.png", Image.fromarray(RAMP), transparency=0)
    assert (grey(one)[0, 0], grey(one)[0, 1]) == (1.0, np.float32(4 / 255))


def test_palettes_and_cmyk_become_colours(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    file = save(tmp_path, "1.png", image)
    assert read(file, ImageOptions())[:, 0].T.tolist() == [[1, 0, 0], [0, 0, 1]]
    clear = save(tmp_path, "2.gif", image, transparency=1)
    assert read(clear, ImageOptions())[:, 0].T.tolist() == [[1, 0, 0], [1, 1, 1]]
    cmyk = save(tmp_path, "3.tif", Image.new("CMYK", (1, 1), (0, 255, 255, 0)))
    assert read(cmyk, ImageOptions()).ravel().tolist() == [1, 0, 0]
    assert grey(save(tmp_path, "4.png", Image.new("1", (1, 1), 1))).tolist() == [[1.0]]


def test_the_orientation_of_exif_is_applied(tmp_path):
    exif = Image.Exif()
    exif[274] = 6  # the camera was turned: the picture is to be turned clockwise by 90 degrees
    pixels = RAMP[:4]
    turned = np.rot90(pixels, -1) / 255
    wide = pixels.astype(np.uint16) * 257
    for name, image in (("1.png", pixels), ("2.png", wide), ("3.tif", pixels), ("4.tif", wide)):
        np.testing.assert_allclose(grey(save(tmp_path, name, Image.fromarray(image), exif=exif)), turned, atol=1e-6)


def test_several_pages_or_frames_are_refused_by_name(tmp_path):
    pages = [Image.fromarray(RAMP), Image.fromarray(255 - RAMP)]
    for name in ("1.tif", "2.gif", "3.png"):
        file = save(tmp_path, name, pages[0], save_all=True, append_images=pages[1:])
        with pytest.raises(ValueError, match=rf"{name}: has 2 pages or frames"):
            read(file, GREY)


def node(folder: Path) -> Path:
    for name, shift in (("a", 0), ("b", 1)):
        (folder / "data" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.roll(RAMP, shift + number).astype(np.uint16) * 257
            Image.fromarray(pixels).save(folder / "data" / name / f"{number}.PNG")
    return folder / "data"


def test_nodes_and_new_clients_read_alike(tmp_path):
    data = node(tmp_path)
    trained = own(tmp_path, 0, 0, classes=["a", "b"], grayscale=True, image_size=6)
    assert trained.scaled
    form = Form(classes=["a", "b"], grayscale=True, image_size=6)
    labelled, inputs = read_new(data, form, labelled=True), read_new(data / "a", form, labelled=False)
    assert np.array_equal(labelled.x[:3], inputs.x)
    assert labelled.y.tolist() == [0, 0, 0, 1, 1, 1]
    everything = np.concatenate([trained.x_train, trained.x_test])
    assert np.array_equal(np.sort(everything, axis=0), np.sort(labelled.x, axis=0))
    assert 0.9 < everything.max() < 1
