"""Losses and predictions of a finished run's models on new data, and on each true cluster's test data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.descriptors import describe, projection
from florets.task.layers import copied, make_whole, untrained_entries
from florets.task.randomness import Purpose, generator
from florets.task.task import Task
from florets.task.training.features import features
from florets.task.training.folds import disjoint_folds, rows_of_folds
from florets.task.training.losses import evaluate, loss_vector, per_sample_losses, targets_of
from florets.task.training.mixture import class_rarity, evaluated_mixture, fit_shares, sample_losses
from florets.task.training.modules import keeps_something
from florets.task.training.settings import Training
from florets.task.wire.folds import RowForm

State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Predictions:
    """One prediction a sample."""

    values: NDArray[Any]
    """(n,): class labels, values of a regression, or an autoencoder's reconstruction errors; of several outputs
    (n, C): probabilities with ``binary_cross_entropy``, else the outputs."""
    probabilities: NDArray[np.float64] | None
    """(n, C): of each class, None where there are no classes."""


def model_losses(task: Task, models: Sequence[State], x: FloatArray, y: TargetArray) -> NDArray[np.float64]:
    """Return the mean loss of each model (K,), infinite of one that diverged; ValueError where arrays do not fit."""
    module, states = _states(task, models)
    losses = loss_vector(module, states, torch.from_numpy(x), torch.from_numpy(y), task.spec.loss)
    return np.where(np.isfinite(losses), losses, np.inf)


def evaluate_model(task: Task, model: State, x: FloatArray, y: TargetArray) -> tuple[float, float | None]:
    """Return a model's mean loss and its accuracy, None where there are no classes; see `model_losses`."""
    module = loaded_module(task, model)
    return evaluate(module, torch.from_numpy(x), torch.from_numpy(y), task.spec.loss)


def fitted_shares(
    task: Task,
    models: Sequence[State],
    x: FloatArray,
    y: TargetArray,
    class_shares: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the share of each model (K,) in the mixture that explains these data best; `class_shares`: P_k(y)."""
    module, states = _states(task, models)
    losses = sample_losses(module, states, torch.from_numpy(x), torch.from_numpy(y), task.spec.loss)
    return fit_shares(losses, None if class_shares is None else class_rarity(y, class_shares))


def evaluate_models(
    task: Task, models: Sequence[State], shares: NDArray[np.float64], x: FloatArray, y: TargetArray
) -> tuple[float, float | None]:
    """Return mean loss and accuracy of the models mixed in these shares; see `evaluate_model`."""
    module, states = _states(task, models)
    found = evaluated_mixture(module, states, shares, torch.from_numpy(x), torch.from_numpy(y), task.spec.loss)
    return found.loss, found.accuracy


def fold_rows(
    task: Task,
    model: State,
    x: FloatArray,
    y: TargetArray,
    folds: int,
    size: int,
    training: Training,
    form: RowForm,
    seed: int,
    estimates: bool = False,
) -> NDArray[np.float32]:
    """Return what a client with these data would send in a discovery, float32 (folds, width); see `rows_of_folds`."""
    module, inputs, targets = loaded_module(task, model), torch.from_numpy(x), torch.from_numpy(y)
    rng = generator(seed, 0, Purpose.FOLDS)
    changes = rows_of_folds(
        module,
        {name: value.clone() for name, value in module.state_dict().items()},
        inputs,
        targets,
        task.spec.loss,
        disjoint_folds(inputs, targets, folds, len(x) if estimates else size, rng),
        size,
        training,
        rng,
        untrained_entries(module),
        estimates,
    )
    if changes.shape[1] != form.size:
        raise ValueError(f"the model has {changes.shape[1]} trainable parameters, but the run's rows {form.size}.")
    return form.unpack(form.pack(changes, generator(seed, 0, Purpose.FOLD_SKETCH)))


def descriptor(
    task: Task, model: State, x: FloatArray, y: TargetArray, classes: int, dimensions: int, seed: int
) -> NDArray[np.float64]:
    """Return what a client with these data would send in FLUX, see `florets.task.descriptors.describe`."""
    found = features(loaded_module(task, model), torch.from_numpy(x), task.spec.head_layers)
    labels = y if task.spec.loss == "cross_entropy" else None
    rows = describe(found, labels, classes, projection(found.shape[1], dimensions, seed))
    # As it would have been sent.
    return rows.astype(np.float32).astype(np.float64)


def predict(task: Task, model: State, x: FloatArray) -> Predictions:
    """Return a model's predictions for inputs (n, *input_shape), each alone: its last bits depend on a batch."""
    loaded, inputs, loss = loaded_module(task, model).eval(), torch.from_numpy(x), task.spec.loss
    alone, found, keeps = torch.empty(1, *x.shape[1:]), [], keeps_something(loaded)
    with torch.inference_mode():
        for row in range(len(inputs)):
            alone.copy_(inputs[row])
            module = copied(loaded, lambda: loaded_module(task, model).eval()) if keeps else loaded
            outputs = module(alone).reshape(1, -1)
            if loss == "cross_entropy":
                found.append(outputs.double().softmax(dim=1).numpy()[0])
            elif loss == "reconstruction":
                found.append(per_sample_losses(outputs, targets_of(alone, alone, loss), loss).numpy())
            else:
                mean_of = {"binary_cross_entropy": torch.sigmoid, "poisson": torch.exp}.get(loss, torch.clone)
                found.append(mean_of(outputs).numpy()[0])
    values = np.stack(found)
    if loss == "cross_entropy":
        return Predictions(values.argmax(axis=1), values)
    return Predictions(values[:, 0] if values.shape[1] == 1 else values, None)


def loaded_module(task: Task, model: State) -> Module:
    """Return the task's module with a saved model's values; ValueError where these are not its own."""
    module = task.module_to_load()
    module.load_state_dict(_tensors(module, model))
    return module


def whole_modules(task: Task, models: Sequence[State]) -> list[Module]:
    """Return a whole module in eval mode for each model; they share their frozen parameters. See `loaded_module`."""
    first = loaded_module(task, models[0]).eval()
    found = [first]
    for model in models[1:]:
        found.append(copied(first, lambda: loaded_module(task, models[0]).eval()))
        found[-1].load_state_dict(_tensors(first, model))
    return [make_whole(module) for module in found]


def _states(task: Task, models: Sequence[State]) -> tuple[Module, list[dict[str, Tensor]]]:
    module = task.module_to_load()
    return module, [_tensors(module, model) for model in models]


def _tensors(module: Module, model: State) -> dict[str, Tensor]:
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name: tuple(values.shape) for name, values in model.items()}
    if found != expected:
        raise ValueError(f"the saved models have the arrays {found}, but the run's task.model has {expected}.")
    return {name: torch.from_numpy(np.array(values)) for name, values in model.items()}


def best_of_each_cluster(
    task: Task, models: Iterable[Mapping[str, NDArray[Any]]], server_round: int = 0
) -> tuple[float, float | None]:
    """Return the lowest loss and the lowest error of all models on each true cluster, mean over the clusters.

    The error, the fraction of samples not put into their class, is None where there are no classes.

    Source: mixed regression, Sec. V-D, the test loss and the misclassification rate.
    """
    module = task.module_to_load()
    losses: list[list[float]] = []
    errors: list[list[float]] = []
    for model in models:
        module.load_state_dict({name: torch.from_numpy(values) for name, values in model.items()})
        results = [evaluate(module, x, y, task.spec.loss) for x, y in task.cluster_tests_at(server_round).values()]
        losses.append([loss for loss, _ in results])
        errors.append([1 - accuracy for _, accuracy in results if accuracy is not None])
    # A model that diverged is the best of no cluster.
    lowest = np.nan_to_num(np.array(losses), nan=np.inf).min(axis=0)
    error = float(np.array(errors).min(axis=0).mean()) if errors[0] else None
    return float(lowest.mean()), error
