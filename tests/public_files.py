"""Tiny files of public data sets in their exact form; `write_stand_ins` writes all that the project reads."""

import gzip
import hashlib
import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from florets.task.data.vision import torchvision_datasets


def write_news(path: Path, records: list[tuple[int, str, str]]) -> None:
    """Write lines as the public files have them: all fields quoted, inner quotes doubled."""
    quoted = [",".join('"' + str(field).replace('"', '""') + '"' for field in record) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in quoted), encoding="utf-8")


def idx_bytes(array: np.ndarray) -> bytes:
    """Return an array of unsigned bytes as an IDX file."""
    head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, prefix: str, n: int, labels: np.ndarray, packed: bool = False) -> np.ndarray:
    """Write images and labels; return the images."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(n).integers(256, size=(n, 28, 28)).astype(np.uint8)
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        content, path = idx_bytes(array), folder / f"{prefix}-{name}-ubyte"
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return images


def write_reviews(folder: Path, raw: bool, number: int = 5) -> None:
    """Write reviews of each kind, `number` good and as many bad ones, in one of the public archives' two forms."""
    for domain in ("books", "dvd", "electronics", "kitchen_&_housewares" if raw else "kitchen"):
        (folder / domain).mkdir(parents=True)
        for word, stars in (("positive", 5.0), ("negative", 1.0)):
            lines = []
            for review in range(number):
                text = f"{domain.split('_')[0]} {'great great' if stars > 3 else 'bad'} thing{review}"
                if raw:
                    block = f"<title>\nA \xe9\n</title>\n<review_text>\n{text}\n</review_text>\n"
                    lines.append(
                        f"<review>\n<unique_id>\n1\n</unique_id>\n<rating>\n{stars}\n</rating>\n{block}</review>\n"
                    )
                else:
                    counts = " ".join(f"{w}:{text.split().count(w)}" for w in dict.fromkeys(text.split()))
                    lines.append(f"{counts} great_thing:7 #label#:{word}\n")
            (folder / domain / f"{word}.review").write_text("".join(lines), encoding="latin-1")
        neutral = "<review>\n<rating>\n3.0\n</rating>\n<review_text>\nso so\n</review_text>\n</review>\n"
        (folder / domain / "unlabeled.review").write_text(neutral if raw else "so:2\n")


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
    class_name: str,
    parts: dict[str, tuple[str, list[int]]],
    names: list[str],
    patch: pytest.MonkeyPatch,
) -> None:
    """Write random images as a class of torchvision reads them; until `patch` is undone it takes them for its own.

    `parts` are "train" and "test", each a file and its labels.
    """
    rng, torchvision = np.random.default_rng(0), getattr(torchvision_datasets(), class_name)
    folder = folder / torchvision.base_folder
    folder.mkdir(parents=True)
    labelled = "labels" if class_name == "CIFAR10" else "fine_labels"
    files: dict[str, Any] = {
        file: {"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), labelled: labels}
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


def write_house_numbers(folder: Path, labels: list[int]) -> np.ndarray:
    """Write random images with these labels, a 0 as a 10, as both parts of SVHN; return the images."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (32, 32, 3, len(labels)), dtype=np.uint8)
    for part in ("train", "test"):
        y = np.array([[label or 10] for label in labels], dtype=np.uint8)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": y})
    return images


def write_channels(folder: Path, sizes: dict[str, int]) -> None:
    """Write random channel states; `sizes` by the ends of the files' names, such as trainin."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, n in sizes.items():
        savemat(folder / f"DATA_H{name}.mat", {"HT": 0.5 + 0.01 * rng.standard_normal((n, 2048))})


def write_tiny_imagenet(folder: Path, classes: list[str], each: int) -> None:
    """Write `each` grey images of each class for training, and one for validation."""
    (folder / "val/images").mkdir(parents=True)
    lines = []
    for number, name in enumerate(classes):
        (folder / f"train/{name}/images").mkdir(parents=True)
        image = Image.new("L", (64, 64), 20 * number % 256)
        for one in range(each):
            image.save(folder / f"train/{name}/images/{name}_{one}.JPEG")
        image.save(folder / f"val/images/val_{number}.JPEG")
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t63\t63\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))


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


def write_fields(path: Path, features: list[np.ndarray], mines: list[np.ndarray]) -> None:
    """Write the records of each field, with 9 features, and whether each is a mine."""
    rows = (
        [field, *map(float, x), int(mine)]
        for field, of_field in enumerate(zip(features, mines, strict=True), start=1)
        for x, mine in zip(*of_field, strict=True)
    )
    write_csv(path, ["field", *(f"x{i}" for i in range(1, 10)), "mine"], rows)


def write_voices(path: Path, patients: Iterable[int], days: int) -> None:
    """Write three recordings of each patient and day; the motor score says which day it is."""
    voice = [f"voice{number}" for number in range(16)]
    rng = np.random.default_rng(0)
    rows = (
        [patient, 60 + patient, patient % 2, day + 0.1 * part, 20 + day, 30 + patient, *rng.standard_normal(16)]
        for patient in patients
        for part in range(3)
        for day in range(days)
    )
    write_csv(path, ["subject#", "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS", *voice], rows)


def write_stand_ins(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write a stand-in for each public data set: few samples, of all of its classes in both parts."""
    for name, prefixes, classes, each in (
        ("MNIST", ("train", "t10k"), 10, (100, 30)),
        ("FashionMNIST", ("train", "t10k"), 10, (100, 30)),
        ("EMNIST", ("emnist-byclass-train", "emnist-byclass-test"), 62, (5, 2)),
    ):
        for prefix, number in zip(prefixes, each, strict=True):
            write_idx(folder / name / "raw", prefix, classes * number, np.tile(np.arange(classes), number))
    digits = [f"class {number}" for number in range(10)]
    of_ten = {"train": ("data_batch_1", 60 * [*range(10)]), "test": ("test_batch", 20 * [*range(10)])}
    write_cifar(folder, "CIFAR10", of_ten, digits, patch)
    of_hundred = {"train": ("train", 4 * [*range(100)]), "test": ("test", 2 * [*range(100)])}
    write_cifar(folder, "CIFAR100", of_hundred, [f"class {number}" for number in range(100)], patch)
    write_house_numbers(folder / "svhn", 20 * [*range(10)])
    write_channels(folder / "COST2100", {"trainin": 40, "testin": 20, "trainout": 40, "testout": 20})
    write_tiny_imagenet(folder / "tiny-imagenet-200", [f"n{number:03}" for number in range(200)], 2)
    words = ["oil", "talks", "chip", "cup"]
    for part in ("train", "test"):
        news = [(1 + i % 4, f"{words[i % 4]} {i}", f"more of {words[i % 4]}") for i in range(240)]
        write_news(folder / "ag_news_csv" / f"{part}.csv", news)
    write_reviews(folder / "amazon_reviews", raw=False, number=40)
    for part, images in (("train", 12), ("test", 6)):
        write_leaf(folder / "femnist" / part / "all.json", {f"f{writer:02}": images for writer in range(10)})
    write_hospitals(folder / "fed_heart_disease", 60)
    write_schools(folder / "schools_hsb82" / "hsb82.csv", 200, 10)
    rng = np.random.default_rng(0)
    mines = [(np.arange(40) % 10 == 0) for _ in range(10)]
    write_fields(folder / "landmine" / "fields.csv", [rng.standard_normal((40, 9)) for _ in mines], mines)
    write_voices(folder / "parkinsons" / "parkinsons_updrs.data", range(1, 11), 10)
