"""Models of a finished run, and its frozen groups, for newcomers."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from florets.conf.consent import TRACKER
from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.saved import saved_config
from florets.conf.schema import Config
from florets.reports.folder import whole_file, write_arrays
from florets.server_app.own_code import changed_files, changed_words, code_on_disk, look_for_given, recorded_code
from florets.server_app.own_data import PREPROCESSING, read_preprocessing
from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.groups import FoldTraining, Frozen
from florets.strategies.base.models import Models
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.task.partitions.own import OWN as OWN_DATA
from florets.task.task import Task, TaskSpec
from florets.task.wire import bank
from florets.task.wire.folds import RowForm

if TYPE_CHECKING:
    from florets.task.data.array_scale import ArrayScale
    from florets.task.data.tables.preprocessing import Preprocessing

MODELS, CLUSTERS, OWN = "models.safetensors", "clusters.safetensors", "own_models.safetensors"
FROZEN = "frozen"
"""Key of a file's metadata; without it the file has no groups."""
_MOST_DIMENSIONS = 100_000
_MOST_FOLDS, _MOST_STEPS = 64, 1000
"""More than any run has: what a made-up file asks for must not keep the machine busy."""

Arrays = dict[str, NDArray[Any]]

log = logging.getLogger("florets")


@dataclass(frozen=True)
class RunModels:
    """A finished run, as far as newcomers need it: the K models at its end, each by its arrays' names."""

    config: Config
    task: Task
    models: tuple[Arrays, ...]
    frozen: Frozen | None
    """The groups by which newcomers are assigned, None where the run froze none."""
    preprocessing: "Preprocessing | None" = None
    own: Mapping[str, Arrays] = field(default_factory=dict)
    """Models of single clients, by their keys, where the run had a personal method within its groups, or FedSoft."""

    def whole(self, state: Arrays) -> Arrays:
        """Return a model with the parameters that all models share because the model function freezes them."""
        return {**(self.task.frozen or {}), **state}

    @property
    def frozen_by(self) -> str:
        """What newcomers are compared by, see `Frozen`; empty where the run froze no groups."""
        return "" if self.frozen is None else self.frozen.by

    @property
    def scale(self) -> "ArrayScale":
        """By which the run's arrays were standardised; tables have their preprocessing."""
        from florets.task.data.array_scale import ArrayScale

        task = self.config.task
        return ArrayScale.of(task.data_options.get("scale") if task.data == OWN_DATA else None)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the order of the models' outputs; numbers where they have none."""
        task, count = self.config.task, self.task.num_outputs
        given = (task.data_options.get("classes") or ()) if task.data == OWN_DATA else ()
        names = [str(name) for name in (given if self.preprocessing is None else self.preprocessing.classes)][:count]
        return names + [str(number) for number in range(len(names), count)]

    @property
    def class_shares(self) -> FloatArray | None:
        """Share of each class in what each model is responsible for, (K, C), of a run of FedRC; else None."""
        return self.frozen.centroids if self.frozen is not None and self.frozen.by == "classes" else None

    def frozen_models(self) -> list[Arrays]:
        """Return the models on which the losses for `nearest_frozen` are taken."""
        return [] if self.frozen is None or self.frozen.models is None else _states(self.frozen.models.record)

    def nearest_frozen(self, losses: FloatArray) -> int:
        """Return the model whose saved centroid is nearest to losses (K,) on `frozen_models`.

        Source: CLoVE Alg. 1, l. 16.
        """
        assert self.frozen is not None, "this run froze no clusters"
        return self.frozen.nearest_model(losses)


def save_clusters(folder: Path, strategy: Strategy[Any, Any], task: Task) -> None:
    """Write ``clusters.safetensors``: sizes that the models were built for, and frozen clusters if there are any."""
    arrays: Arrays = {}
    about = {"input_shape": json.dumps(list(task.input_shape)), "num_outputs": str(task.num_outputs)}
    if (frozen := strategy.frozen_clusters()) is not None:
        about[FROZEN] = json.dumps(encode(frozen, arrays, FROZEN))
    with whole_file(folder / CLUSTERS, "wb") as file:
        write_arrays(file, arrays, about)


def read_frozen(
    arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], num_models: int, classes: int, probes: int = 0
) -> Frozen | None:
    """Return the groups of a file, None where it has none; nothing in it is trusted.

    Loss vectors are taken on `probes` further models. ValueError or TypeError if the parts do not fit together.
    """
    if FROZEN not in metadata:
        return None
    frozen = decode(json.loads(metadata[FROZEN]), arrays)
    if not isinstance(frozen, Frozen) or type(frozen.seed) is not int or frozen.seed < 0:
        raise ValueError("the groups are not described")
    if not all(np.isfinite(part).all() for part in (frozen.centroids, frozen.origin, frozen.scale)):
        raise ValueError("the groups' centroids or scale are not finite numbers")
    if frozen.by != "classes" and not isinstance(frozen.models, Models):
        raise ValueError("the common model is missing, or those that losses are taken on")
    fits: Any
    shape, origin, scale = (part.shape for part in (frozen.centroids, frozen.origin, frozen.scale))
    match frozen.by:
        case "losses":
            assert frozen.models is not None
            # CLoVE's probes were frozen with the models: losses are taken on them, too.
            vector, place = num_models + probes, frozen.model_of_cluster
            fits = bank.num_models(frozen.models.record) == vector and shape == (len(place), vector) and len(place)
            fits = fits and all(index in range(num_models) for index in place.tolist())
        case "folds":
            width = _checked(frozen.training).form.width
            fits = (origin, shape, scale) == ((width,), (num_models, width), (num_models,))
        case "descriptors":
            rows = 2 * (classes + 1)
            fits = len(shape) == 3 and shape[:2] == (num_models, rows) and 1 <= shape[2] <= _MOST_DIMENSIONS
            fits = fits and origin == scale == (rows,) and (frozen.scale >= 0).all()
        case "classes":
            shares = frozen.centroids
            fits = shape == (num_models, classes) and (shares > 0).all() and np.allclose(shares.sum(axis=1), 1)
        case _:
            fits = False
    if not fits:
        raise ValueError(f"groups by {frozen.by} with centroids {shape} do not fit {num_models} models")
    return frozen


def _checked(training: FoldTraining | None) -> FoldTraining:
    if not isinstance(training, FoldTraining) or not isinstance(training.form, RowForm):
        raise ValueError("there is no training on folds")
    numbers = [training.folds, training.size, training.steps, training.form.width, training.form.size]
    if not all(type(number) is int for number in numbers) or type(training.rate) is not float:
        raise ValueError(f"{numbers} are not integers, or the learning rate is no number")
    folds, size, steps, width, parameters = numbers
    if not (2 <= folds <= _MOST_FOLDS and size >= 1 and 1 <= steps <= _MOST_STEPS and 1 <= width <= parameters):
        raise ValueError(f"folds={folds}, size={size}, steps={steps}, width={width} are no training on folds")
    if not 0.0 < training.rate <= 1.0:
        raise ValueError(f"a learning rate of {training.rate!r} is none")
    return training


def save_own_models(folder: Path, strategy: Strategy[Any, Any], models: Models) -> None:
    """Write ``own_models.safetensors``: the models of single clients, where these have any besides `models`."""
    own = strategy.own_models(models)
    if not own:
        return
    keys = sorted(own)
    arrays: Arrays = {}
    for index, key in enumerate(keys):
        (state,) = _states(models.replaced(own[key][np.newaxis]).record)
        arrays.update({f"{index}/{name}": values for name, values in state.items()})
    with whole_file(folder / OWN, "wb") as file:
        write_arrays(file, arrays, {"clients": json.dumps(keys, ensure_ascii=False)})


def load_run(folder: Path, trust: bool = False) -> RunModels:
    """Read a finished run's folder; nothing in it is trusted, and nothing is unpickled.

    With `trust` a model or a strategy that the run names by an import path may be imported and called. ConfigError if
    the folder is no finished run's, a file is damaged, or files do not fit together.
    """
    if not folder.is_dir():
        raise ConfigError(f"run={folder}: there is no such folder; give the folder of a finished run.")
    # The run's own data are not read again, nor shared out.
    if trust:
        look_for_given(folder)
    config = saved_config(folder, trust=trust, unused=("task.data", "task.partition", TRACKER))
    if changed := changed_files(recorded_code(folder), code_on_disk(config)):
        log.warning("warning: run=%s: its code has changed since: %s", folder, changed_words(changed))
    models, _ = _read(folder / MODELS)
    # They are of no model, and have no number.
    shared = {name: models.pop(name) for name in list(models) if not bank.is_numbered(name)}
    clusters, metadata = _read(folder / CLUSTERS)
    try:
        shape, outputs = json.loads(metadata["input_shape"]), int(metadata["num_outputs"])
        if not isinstance(shape, list) or not all(type(size) is int and size >= 1 for size in (*shape, outputs)):
            raise ValueError(f"sizes {shape} and {outputs} are not integers from 1")
        states = _models(models)
        probes = config.strategy.settings.extra_models
        frozen = read_frozen(clusters, metadata, len(states), outputs, probes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder / CLUSTERS}: does not fit the run ({error}).") from None
    own = _own_models(folder / OWN, states) if (folder / OWN).is_file() else {}
    # Nodes with data of their own build the same models without any data of the server's.
    agreed = {"data": "own", "data_options": {}, "partition": "own"}
    agreed["partition_options"] = {"input_shape": shape, "num_outputs": outputs}
    task = Task(TaskSpec(**{**task_spec(config), **agreed}), frozen=shared)
    return RunModels(config, task, states, frozen, _preprocessing(folder, task), own)


def _read(path: Path) -> tuple[Arrays, Mapping[str, str]]:
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 - no mapping
    # A header from anywhere: what a damaged one raises is not all safetensors' own.
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); run must name the folder of a finished run.") from None


def _own_models(path: Path, states: Sequence[Arrays]) -> dict[str, Arrays]:
    """Return the models of single clients, which have the arrays that the groups' models have."""
    arrays, metadata = _read(path)
    try:
        keys = json.loads(metadata["clients"])
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("its clients are no list of texts")
        found = _models(arrays) if keys else ()
        if len(found) != len(set(keys)) or any(own.keys() != states[0].keys() for own in found):
            raise ValueError(f"{len(found)} models for {len(keys)} clients, or other arrays")
        if any(own[name].shape != states[0][name].shape for own in found for name in own):
            raise ValueError("arrays of other shapes")
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path}: does not fit the run ({error}).") from None
    return dict(zip(keys, found, strict=True))


def _preprocessing(folder: Path, task: Task) -> "Preprocessing | None":
    """Return how tables become the models' inputs, which they must fit."""
    found = read_preprocessing(folder)
    if found is not None and (found.width, max(len(found.classes), 1)) != (
        math.prod(task.input_shape),
        task.num_outputs,
    ):
        raise ConfigError(
            f"{folder / PREPROCESSING}: its {found.width} inputs and {len(found.classes)} classes do not fit the "
            "run's models; run the experiment again."
        )
    return found


def _models(arrays: Arrays) -> tuple[Arrays, ...]:
    if not arrays:
        raise ValueError("there are no models")
    record = ArrayRecord({name: Array(values) for name, values in arrays.items()})
    states = tuple(_states(record))
    if any(state.keys() != states[0].keys() for state in states):
        raise ValueError("the models have different arrays")
    return states


def _states(record: ArrayRecord) -> list[Arrays]:
    return [{name: array.numpy() for name, array in model.items()} for model in bank.models(record)]
