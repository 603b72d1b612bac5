"""Groups that a run's discovery found, in its folder, and which of them new data belong to."""

import json
from collections.abc import Mapping

import numpy as np

from florets.server_app.new_client.common_model import Arrays, pack_common, unpack_common
from florets.strategies.base.placement import FrozenGroups
from florets.strategies.core.placement import Centres
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.new_client import fold_rows
from florets.task.task import Task
from florets.task.training.folds import on_folds
from florets.task.training.settings import Training
from florets.task.wire.folds import RowForm

NAME = "groups"
"""Key of the file's metadata; without it the file has no groups."""
_MOST_FOLDS, _MOST_STEPS = 64, 1000
"""More than any run has: what a made-up file asks for must not keep the machine busy."""


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
    return arrays, {NAME: json.dumps({**numbers, **form})}


def unpack_groups(arrays: Arrays, metadata: Mapping[str, str], num_models: int) -> FrozenGroups | None:
    """Return what `pack_groups` wrote, None where the file has no groups; nothing in it is trusted.

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
