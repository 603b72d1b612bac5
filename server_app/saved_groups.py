"""A run's frozen groups as arrays and JSON for a file, and back; new data's place among them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.base.placement import FoldTraining, Frozen
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.new_client import descriptor, fold_rows
from florets.task.task import Task
from florets.task.training.folds import on_folds
from florets.task.training.settings import Training
from florets.task.wire import bank
from florets.task.wire.folds import RowForm

FROZEN = "frozen"
"""Key of the file's metadata; without it the file has no groups."""
_TOLERANCE = 1e-6
_MOST_DIMENSIONS = 100_000
_MOST_FOLDS, _MOST_STEPS = 64, 1000
"""More than any run has: what a made-up file asks for must not keep the machine busy."""

Arrays = dict[str, NDArray[Any]]

_PREFIX = "models/"


def pack_frozen(frozen: Frozen | None) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of the file."""
    arrays: Arrays = {}
    about: dict[str, Any] = {}
    for field in fields(Frozen) if frozen is not None else ():
        value = getattr(frozen, field.name)
        if isinstance(value, np.ndarray):
            arrays |= {field.name: value} if value.size else {}
        elif isinstance(value, Models):
            arrays |= {f"{_PREFIX}{name}": array.numpy() for name, array in value.record.items()}
        elif isinstance(value, FoldTraining):
            about[field.name] = asdict(value)
        elif value is not None and value != field.default:
            about[field.name] = value
    return arrays, {FROZEN: json.dumps(about)} if about else {}


def unpack_frozen(
    arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], num_models: int, classes: int, probes: int = 0
) -> Frozen | None:
    """Return what `pack_frozen` wrote, None where the file has no groups; nothing in it is trusted.

    Loss vectors are taken on `probes` further models. ValueError if the parts do not fit together, KeyError if one is
    missing.
    """
    if FROZEN not in metadata:
        return None
    about = json.loads(metadata[FROZEN])
    if not isinstance(about, dict) or about.get("by") not in _CHECKS:
        raise ValueError("the groups are not described")
    seed, limit = about.get("seed", 0), about.get("limit", np.inf)
    if type(seed) is not int or seed < 0:
        raise ValueError("the groups have no seed")
    if type(limit) is not float or not limit > 0:
        raise ValueError(f"the losses' limit is {limit}, not above 0")
    parts = {name: np.asarray(arrays[name], np.float64) for name in ("centroids", *_NEEDED.get(about["by"], ()))}
    if not all(np.isfinite(part).all() for part in parts.values()):
        raise ValueError("the groups' centroids or scale are not finite numbers")
    record = {name.removeprefix(_PREFIX): Array(v) for name, v in arrays.items() if name.startswith(_PREFIX)}
    if not record and about["by"] != "classes":
        raise ValueError("the common model is missing, or those that losses are taken on")
    models = Models(ArrayRecord(record)) if record else None
    square_root = about.get("square_root") is True
    training = _training(about["training"]) if about["by"] == "folds" else None
    none = np.zeros(0)
    frozen = Frozen(
        about["by"],
        parts["centroids"],
        models,
        arrays["model_of_cluster"] if about["by"] == "losses" else none.astype(np.int64),
        origin=parts.get("origin", none),
        scale=parts.get("scale", none),
        square_root=square_root,
        limit=limit,
        seed=seed,
        training=training,
    )
    _CHECKS[frozen.by](frozen, num_models, classes, probes)
    return frozen


def _training(about: Any) -> FoldTraining:
    form = about["form"]
    numbers = [*(about[name] for name in ("folds", "size", "steps")), *(form[name] for name in ("width", "size"))]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{numbers} are not integers")
    folds, size, steps, width, parameters = numbers
    if not (2 <= folds <= _MOST_FOLDS and size >= 1 and 1 <= steps <= _MOST_STEPS):
        raise ValueError(f"folds={folds}, size={size}, steps={steps} are no training on folds")
    rate = about["rate"]
    if type(rate) is not float or not 0.0 < rate <= 1.0:
        raise ValueError(f"a learning rate of {rate!r} is none")
    form = RowForm.read(width, parameters)
    return FoldTraining(folds, size, steps, rate, form, about.get("estimates") is True)


def _check_losses(frozen: Frozen, num_models: int, classes: int, probes: int) -> None:
    assert frozen.models is not None
    # CLoVE's probes were frozen with the models: losses are taken on them, too.
    vector = num_models + probes
    if bank.num_models(frozen.models.record) != vector:
        raise ValueError(f"the run has {vector} models and probes, but other frozen ones")
    shape = (len(frozen.model_of_cluster), vector)
    if not shape[0] or frozen.centroids.shape != shape:
        raise ValueError(f"the centroids are not {shape} finite numbers")
    if not all(index in range(num_models) for index in frozen.model_of_cluster.tolist()):
        raise ValueError(f"a cluster's model is none of the {num_models}")


def _check_folds(frozen: Frozen, num_models: int, classes: int, probes: int) -> None:
    assert frozen.training is not None
    width = frozen.training.form.width
    shapes = (frozen.origin.shape, frozen.centroids.shape, frozen.scale.shape)
    if shapes != ((width,), (num_models, width), (num_models,)):
        raise ValueError(f"the groups' centres have shapes {shapes}, for {num_models} models and width {width}")


def _check_descriptors(frozen: Frozen, num_models: int, classes: int, probes: int) -> None:
    shape, rows = frozen.centroids.shape, 2 * (classes + 1)
    fits = len(shape) == 3 and shape[:2] == (num_models, rows) and 1 <= shape[2] <= _MOST_DIMENSIONS
    if not fits or frozen.origin.shape != (rows,) or frozen.scale.shape != (rows,):
        raise ValueError(f"centroids {shape} do not fit {num_models} models and {classes} classes")
    if (frozen.scale < 0).any():
        raise ValueError("the descriptors' scale has a range that is negative")


def _check_classes(frozen: Frozen, num_models: int, classes: int, probes: int) -> None:
    shares = frozen.centroids
    if shares.shape != (num_models, classes):
        raise ValueError(f"class shares of shape {shares.shape} do not fit {num_models} models and {classes} classes")
    if not ((shares > 0).all() and (np.abs(shares.sum(axis=1) - 1) <= _TOLERANCE).all()):
        raise ValueError("the class shares are not above 0 with sum 1 for each model")


_CHECKS = {
    "losses": _check_losses,
    "folds": _check_folds,
    "descriptors": _check_descriptors,
    "classes": _check_classes,
}
_NEEDED = {"folds": ("origin", "scale"), "descriptors": ("origin", "scale")}


def nearest_descriptor(groups: Frozen, task: Task, x: FloatArray, y: TargetArray | None) -> int:
    """Return the group whose centroid is nearest to new data; without targets the rows that need none decide."""
    _, rows, dimensions = groups.centroids.shape
    found = descriptor(task, _common(groups), x, y, rows // 2 - 1, dimensions, groups.seed)
    return groups.nearest_descriptor(found, labelled=y is not None)


def nearest_group(groups: Frozen, task: Task, train: Training, x: FloatArray, y: TargetArray) -> tuple[int, float]:
    """Train the common model on data as the run's clients did; return the group (-1: none fits) and the cosine."""
    how = groups.training
    assert how is not None
    size = how.size_of(len(x))
    folds, size = (how.folds, size) if size else (1, len(x))
    training = on_folds(train, how.steps, how.rate)
    sent = (training, how.form, groups.seed, how.estimates)
    return groups.place_rows(fold_rows(task, _common(groups), x, y, folds, size, *sent))


def _common(groups: Frozen) -> Arrays:
    assert groups.models is not None
    return {name: array.numpy() for name, array in groups.models.one(0).items()}
