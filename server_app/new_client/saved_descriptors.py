"""Groups that a run of FLUX found, in its folder, and which of them new data belong to."""

import json
from collections.abc import Mapping

import numpy as np

from florets.server_app.new_client.common_model import Arrays, pack_common, unpack_common
from florets.strategies.base.placement import FrozenDescriptors, RowScale
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.new_client import descriptor
from florets.task.task import Task

NAME = "descriptors"
"""Key of the file's metadata; without it the file has no descriptors."""
_MOST_DIMENSIONS = 100_000


def pack_descriptors(groups: FrozenDescriptors) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of the file."""
    arrays: Arrays = {"centroids": groups.centroids, "low": groups.scale.low, "width": groups.scale.width}
    arrays |= pack_common(groups.common)
    return arrays, {NAME: json.dumps({"seed": groups.seed})}


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
    if NAME not in metadata:
        return None
    about = json.loads(metadata[NAME])
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
