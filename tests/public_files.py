"""Tiny files of public data sets in their exact form; `write_samples` writes all that the project reads."""

import gzip
import hashlib
import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from florets.task.data.public_images import torchvision_datasets


def write_news(path: Path, records: list[tuple[int, str, str]]) -> None:
    """Write lines as the public files have them: all fields quoted, inner quotes doubled."""
    quoted = [",".join('"' + str(field).replace('"', '""') + '"' for field in record) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in quoted), encoding="utf-8")


def idx_bytes(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, prefix: str, n: int, labels: np.ndarray, packed: bool = False) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(n).integers(256, size=(n, 28, 28)).astype(np.uint8)
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        content, path = idx_bytes(array), folder / f"{prefix}-{name}-ubyte"
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return images


def write_reviews(folder: Path, number: int = 5) -> None:
    """Write reviews of each kind, `number` good and as many bad ones."""
    for domain in ("books", "dvd", "electronics", "kitchen"):
        (folder / domain).mkdir(parents=True)
        for word, how in (("positive", "great:2"), ("negative", "bad:1")):
            lines = [f"{domain}:1 {how} thing{review}:1 great_thing:7 #label#:{word}\n" for review in range(number)]
            (folder / domain / f"{word}.review").write_text("".join(lines), encoding="latin-1")
        (folder / domain / "unlabeled.review").write_text("so:2\n")


def write_leaf(path: Path, writers: dict[str, int], first: int = 0) -> None:
    """Write images of some writers as LEAF does; the first pixel counts all images of the file."""
    content: dict[str, object] = {"users": list(writers), "num_samples": list(writers.values()), "user_data": {}}
    for writer, n in writers.items():
        x = [[float(first + i)] + [1.0] * 783 for i in range(n)]
        content["user_data"][writer] = {"x": x, "y": [61 - i for i in range(n)]}  # type: ignore[index]
        first += n
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_cifar(
    folder: Path,
    parts: dict[str, tuple[str, list[int]]],
    names: list[str],
    patch: pytest.MonkeyPatch,
) -> None:
    """Write random images as torchvision reads CIFAR-10; until `patch` is undone it takes them for its own.

    `parts` are "train" and "test", each a file and its labels.
    """
    rng, torchvision = np.random.default_rng(0), torchvision_datasets().CIFAR10
    folder = folder / torchvision.base_folder
    folder.mkdir(parents=True)
    files: dict[str, Any] = {
        file: {"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), "labels": labels}
        for file, labels in parts.values()
    }
    files[torchvision.meta["filename"]] = {torchvision.meta["key"]: names}
    for name, values in files.items():
        (folder / name).write_bytes(pickle.dumps(values))
    # torchvision knows the published files by their MD5.
    known = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in files}
    for part, (file, _) in parts.items():
        patch.setattr(torchvision, f"{part}_list", [[file, known[file]]])
    patch.setattr(torchvision, "meta", {**torchvision.meta, "md5": known[torchvision.meta["filename"]]})


def write_channels(folder: Path, sizes: dict[str, int]) -> None:
    """Write random channel states; `sizes` by the ends of the files' names, such as trainin."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, n in sizes.items():
        savemat(folder / f"DATA_H{name}.mat", {"HT": 0.5 + 0.01 * rng.standard_normal((n, 2048))})


def write_hospitals(folder: Path, patients: int) -> None:
    """Write patients of four hospitals, one of five without the disease, and at each one with a missing value."""
    folder.mkdir(parents=True)
    line = "{age},1,4,120,200,0,2,150,0,1.5,?,?,?,{num}\n"
    for number, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        text = "".join(line.format(age=50 + i + number, num=i % 5) for i in range(patients + number))
        (folder / f"processed.{hospital}.data").write_text(text + "61,?,4,120,200,0,2,150,0,1.5,?,?,?,1\n")


def write_csv(path: Path, head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table whose fields need no quotes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(",".join(map(str, line)) + "\n" for line in (head, *rows)))


def write_schools(path: Path, pupils: int, schools: int) -> None:
    """Write pupils who go to the schools in turn, and know the more the later they come."""
    head = ["school", "minority", "female", "ses", "meanses", "sector", "math"]
    write_csv(
        path, head, ([1000 + i % schools, int(i % 3 == 0), 1, i / 10, 0.1, "Public", 10 + i] for i in range(pupils))
    )


def write_samples(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write a few samples of each public data set, of all of its classes in both parts."""
    for name, prefixes, classes, each in (
        ("MNIST", ("train", "t10k"), 10, (100, 30)),
        ("FashionMNIST", ("train", "t10k"), 10, (100, 30)),
        ("EMNIST", ("emnist-byclass-train", "emnist-byclass-test"), 62, (5, 2)),
    ):
        for prefix, number in zip(prefixes, each, strict=True):
            write_idx(folder / name / "raw", prefix, classes * number, np.tile(np.arange(classes), number))
    digits = [f"class {number}" for number in range(10)]
    of_ten = {"train": ("data_batch_1", 60 * [*range(10)]), "test": ("test_batch", 20 * [*range(10)])}
    write_cifar(folder, of_ten, digits, patch)
    write_channels(folder / "COST2100", {"trainin": 40, "testin": 20, "trainout": 40, "testout": 20})
    words = ["oil", "talks", "chip", "cup"]
    for part in ("train", "test"):
        news = [(1 + i % 4, f"{words[i % 4]} {i}", f"more of {words[i % 4]}") for i in range(240)]
        write_news(folder / "ag_news_csv" / f"{part}.csv", news)
    write_reviews(folder / "amazon_reviews", number=40)
    for part, images in (("train", 12), ("test", 6)):
        write_leaf(folder / "femnist" / part / "all.json", {f"f{writer:02}": images for writer in range(10)})
    write_hospitals(folder / "fed_heart_disease", 60)
    write_schools(folder / "schools_hsb82" / "hsb82.csv", 200, 10)
