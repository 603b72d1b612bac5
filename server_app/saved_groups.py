"""A run's groups as files for clients that come later: class shares, descriptors, the groups of a discovery."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.base.placement import ClassShares, FrozenDescriptors, FrozenGroups, RowScale
from florets.strategies.core.placement import Centres
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.new_client import descriptor, fold_rows
from florets.task.task import Task
from florets.task.training.folds import on_folds
from florets.task.training.settings import Training
from florets.task.wire.folds import RowForm

CLASS_SHARES = "class_shares"
_TOLERANCE = 1e-6


DESCRIPTORS = "descriptors"
"""Key of the file's metadata; without it the file has no descriptors."""
_MOST_DIMENSIONS = 100_000


GROUPS = "groups"
"""Key of the file's metadata; without it the file has no groups."""
_MOST_FOLDS, _MOST_STEPS = 64, 1000
"""More than any run has: what a made-up file asks for must not keep the machine busy."""


Arrays = dict[str, NDArray[Any]]

_PREFIX = "common/"


def pack_common(models: Models) -> Arrays:
    """Return the arrays of the one model."""
    return {f"{_PREFIX}{name}": array.numpy() for name, array in models.one(0).items()}


def unpack_common(arrays: Arrays) -> Models:
    """Return the model that `pack_common` wrote; raise ValueError where there is none."""
    common = {name.removeprefix(_PREFIX): Array(v) for name, v in arrays.items() if name.startswith(_PREFIX)}
    if not common:
        raise ValueError("the common model is missing")
    return Models(ArrayRecord(common))


def pack_class_shares(found: ClassShares) -> dict[str, NDArray[Any]]:
    """Return the arrays of the file."""
    return {CLASS_SHARES: found.shares}


def unpack_class_shares(
    arrays: Mapping[str, NDArray[Any]], num_models: int, classes: int
) -> NDArray[np.float64] | None:
    """Return the share of each class in each model's part, (K, C), None where the file has none.

    Nothing in the file is trusted.

    Raises
    ------
    ValueError
        If they are not of these sizes, above 0 and with sum 1 for each model.
    """
    if CLASS_SHARES not in arrays:
        return None
    shares = arrays[CLASS_SHARES].astype(np.float64)
    if shares.shape != (num_models, classes):
        raise ValueError(f"class shares of shape {shares.shape} do not fit {num_models} models and {classes} classes")
    if not ((shares > 0).all() and (np.abs(shares.sum(axis=1) - 1) <= _TOLERANCE).all()):
        raise ValueError("the class shares are not above 0 with sum 1 for each model")
    return shares


def pack_descriptors(groups: FrozenDescriptors) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of the file."""
    arrays: Arrays = {"centroids": groups.centroids, "low": groups.scale.low, "width": groups.scale.width}
    arrays |= pack_common(groups.common)
    return arrays, {DESCRIPTORS: json.dumps({"seed": groups.seed})}


def unpack_descriptors(
    arrays: Arrays, metadata: Mapping[str, str], num_models: int, classes: int
) -> FrozenDescriptors | None:
    """Return what `pack_descriptors` wrote, None where the file has none; nothing in it is trusted.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    KeyError
        If one is missing.
    """
    if DESCRIPTORS not in metadata:
        return None
    about = json.loads(metadata[DESCRIPTORS])
    if not isinstance(about, dict) or type(about["seed"]) is not int or about["seed"] < 0:
        raise ValueError("the descriptors have no seed")
    centroids, low, width = (arrays[name].astype(np.float64) for name in ("centroids", "low", "width"))
    rows = 2 * (classes + 1)
    fits = centroids.ndim == 3 and centroids.shape[:2] == (num_models, rows)
    if not fits or not 1 <= centroids.shape[2] <= _MOST_DIMENSIONS or low.shape != (rows,) or width.shape != (rows,):
        raise ValueError(f"centroids {centroids.shape} do not fit {num_models} models and {classes} classes")
    if not all(np.isfinite(part).all() for part in (centroids, low, width)) or (width < 0).any():
        raise ValueError("the descriptors' scale and centroids are not finite, or a range is negative")
    return FrozenDescriptors(unpack_common(arrays), about["seed"], RowScale(low, width), centroids)


def nearest_descriptor(groups: FrozenDescriptors, task: Task, x: FloatArray, y: TargetArray | None) -> int:
    """Return the group whose centroid is nearest to new data; without targets the rows that need none decide.

    Raises
    ------
    ValueError
        If data or model do not fit the task.
    """
    common = {name: array.numpy() for name, array in groups.common.one(0).items()}
    _, rows, dimensions = groups.centroids.shape
    found = descriptor(task, common, x, y, rows // 2 - 1, dimensions, groups.seed)
    return groups.group_of(found, labelled=y is not None)


def pack_groups(groups: FrozenGroups) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of the file."""
    centres = groups.centres
    arrays: Arrays = {"origin": centres.origin, "directions": centres.directions, "usual": centres.usual}
    arrays |= pack_common(groups.common)
    numbers = {"folds": groups.folds, "size": groups.size, "steps": groups.steps, "seed": groups.seed}
    form = {
        "rate": groups.rate,
        "upload": groups.form.upload,
        "width": groups.form.width,
        "parameters": groups.form.size,
    }
    return arrays, {GROUPS: json.dumps({**numbers, **form})}


def unpack_groups(arrays: Arrays, metadata: Mapping[str, str], num_models: int) -> FrozenGroups | None:
    """Return what `pack_groups` wrote, None where the file has no groups; nothing in it is trusted.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    KeyError
        If one is missing.
    """
    if GROUPS not in metadata:
        return None
    about = json.loads(metadata[GROUPS])
    if not isinstance(about, dict):
        raise ValueError("the groups are not described")
    numbers = [about[name] for name in ("folds", "size", "steps", "seed", "width", "parameters")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{numbers} are not integers")
    folds, size, steps, seed, width, parameters = numbers
    if not (2 <= folds <= _MOST_FOLDS and size >= 1 and 1 <= steps <= _MOST_STEPS):
        raise ValueError(f"folds={folds}, size={size}, steps={steps} are no training on folds")
    rate = about["rate"]
    if type(rate) is not float or not 0.0 < rate <= 1.0:
        raise ValueError(f"a learning rate of {rate!r} is none")
    form = RowForm.read(about["upload"], width, parameters)
    centres = Centres(*(arrays[name].astype(np.float64) for name in ("origin", "directions", "usual")))
    shapes = (centres.origin.shape, centres.directions.shape, centres.usual.shape)
    if shapes != ((width,), (num_models, width), (num_models,)):
        raise ValueError(f"the groups' centres have shapes {shapes}, for {num_models} models and width {width}")
    if not all(np.isfinite(part).all() for part in (centres.origin, centres.directions, centres.usual)):
        raise ValueError("the groups' centres are not finite")
    return FrozenGroups(unpack_common(arrays), folds, size, steps, rate, form, seed, centres)


def nearest_group(
    groups: FrozenGroups, task: Task, train: Training, x: FloatArray, y: TargetArray
) -> tuple[int, float]:
    """Train the common model on data as the run's clients did; return the group, -1 where none fits, and the cosine.

    Raises
    ------
    ValueError
        If data or model do not fit the task.
    """
    folds = groups.folds_of(len(x))
    size = groups.size if folds > 1 else len(x)
    common = {name: array.numpy() for name, array in groups.common.one(0).items()}
    rows = fold_rows(
        task, common, x, y, folds, size, on_folds(train, groups.steps, groups.rate), groups.form, groups.seed
    )
    return groups.group_of(rows)
