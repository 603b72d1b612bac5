"""FEMNIST: handwritten digits and letters by the writer, as LEAF's files or NumPy archives."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.data.files import folder_of, reading
from florets.task.data.read_npz import read_arrays
from florets.task.data.samples import Samples, samples
from florets.task.registry import register_data

CLASSES, SIDE = 62, 28
_LAYOUT = (
    "LEAF's train/*.json and test/*.json (users, and user_data with x and y of each), or train.npz and test.npz with "
    "the arrays x, y and writer"
)
_REMEDY = (
    "Make them by LEAF's data/femnist/preprocess.sh -s niid --sf 0.3 -k 0 -t sample, and copy its folders data/train "
    "and data/test there."
)


@register_data("femnist", files=True)
def femnist(data_dir: Path | None, seed: int, num_clusters: int, standardise: bool = False) -> Dataset:
    """Load FEMNIST: images (n, 1, 28, 28) of 62 classes, pixels as the files have them, each with its writer.

    The partition ``natural`` makes a client of each writer. The files lie in ``<data_dir>/femnist``. `seed` and
    `num_clusters` are not used.

    Parameters
    ----------
    data_dir
        Folder that holds ``femnist/``.
    standardise
        Whether the mean of all train pixels is taken off, and what remains divided by their standard deviation.

    Raises
    ------
    ValueError
        If a file is missing or does not have this form.

    Source: LEAF's FEMNIST, as CLoVE, App. D.1.4, takes it.
    """
    folder = folder_of("femnist", data_dir, ("femnist", "FEMNIST"), _LAYOUT, _REMEDY)
    train, test = (_part(folder, name) for name in ("train", "test"))
    x_train, x_test = train.x, test.x
    if standardise:
        mean, deviation = (np.float32(moment(x_train, dtype=np.float64)) for moment in (np.mean, np.std))
        x_train, x_test = (x_train - mean) / deviation, (x_test - mean) / deviation
    return Dataset(
        x_train,
        train.y,
        x_test,
        test.y,
        num_outputs=CLASSES,
        owners_train=train.owners,
        owners_test=test.owners,
    )


def _part(folder: Path, name: str) -> Samples:
    archive, texts = folder / f"{name}.npz", sorted((folder / name).glob("*.json"))
    if archive.is_file():
        x, y, writers = read_arrays(archive, ("x", "y", "writer"))
        return _checked(archive, x, y, writers)
    if not texts:
        raise ValueError(
            f"data femnist: {folder} has neither {name}/*.json nor {name}.npz. Expected: {_LAYOUT}. {_REMEDY}"
        )
    parts = [_json(path) for path in texts]
    owners = [part.owners for part in parts if part.owners is not None]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate(owners),
    )


def _json(path: Path) -> Samples:
    with reading("femnist", path, _LAYOUT, _REMEDY):
        content = json.loads(path.read_text(encoding="utf-8"))
        users = [str(user) for user in content["users"]]
        of_user: dict[str, dict[str, Any]] = content["user_data"]
        # One writer after the other: the lists of a whole file as numbers of Python take ten times the memory.
        images = [np.array(of_user[user].pop("x"), dtype=np.float32).reshape(-1, SIDE * SIDE) for user in users]
        labels = [np.array(of_user[user]["y"], dtype=np.int64) for user in users]
        for user, x, y in zip(users, images, labels, strict=True):
            if len(x) != len(y):
                raise ValueError(f"writer {user} has {len(x)} images and {len(y)} labels")
        if not users:
            raise ValueError("it names no user")
    writers = np.repeat(np.array(users, dtype=np.str_), [len(y) for y in labels])
    return _checked(path, np.concatenate(images), np.concatenate(labels), writers)


def _checked(path: Path, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], writers: np.ndarray[Any, Any]) -> Samples:
    with reading("femnist", path, _LAYOUT, _REMEDY):
        if x[:1].size != SIDE * SIDE:
            raise ValueError(f"x has shape {x.shape} and not {SIDE} x {SIDE} pixels a sample")
        if y.ndim != 1 or writers.shape != y.shape or not np.issubdtype(y.dtype, np.integer):
            raise ValueError("y and writer must hold one integer and one name for each sample")
    found = samples(path, x.reshape(len(x), 1, SIDE, SIDE), y.astype(np.int64))
    return Samples(found.x, found.y, writers.astype(np.str_))
