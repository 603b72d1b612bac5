"""Training of one model on each of several disjoint folds of a client's data, for discovery."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from florets.task.training.loop import TrainSettings, local_update
from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.training.modules import Precision, load
from florets.task.training.objective import Objective, class_weights
from florets.task.training.optimizers import Adam, clip_rows
from florets.task.training.vectorised import Network, network_of

LEARNING_RATE = 0.01
"""Of Adam, whatever the task's own optimiser is: its steps are of one size in all directions, so that the noise of an
update has many directions and none outweighs the rest. The updates of SGD lie in a few."""

IntArray = NDArray[np.int64]
Float32 = NDArray[np.float32]


def disjoint_folds(
    x: Tensor, y: Tensor, folds: int, size: int, rng: np.random.Generator, subjects: Tensor | None = None
) -> list[IntArray]:
    """Draw disjoint folds of equal size, equal records in one fold, and all of a subject's.

    Parameters
    ----------
    x, y
        Inputs (n, *input_shape) and targets (n, ...). Records that are equal in both are one record: of few
        columns with few values many inputs are equal by chance.
    folds, size
        Number of folds, and samples of each.
    rng
        Draws the samples, and which fold they are in.
    subjects
        int64 (n,): whose each record is; None: each stands for itself.

    Returns
    -------
    list of ndarray
        int64 (size,) each: no record is in two of them. Each different record is there once, as long as there are
        enough; where there are not, each fold repeats its own until it is full. Fewer different records (or subjects)
        than folds cannot be divided: one fold of all n samples.
    """
    if subjects is not None:
        return _folds_of_subjects(subjects.cpu().numpy(), folds, size, rng)
    wanted = folds * size
    first: dict[bytes, int] = {}
    # Rows of an array: to index a tensor takes ten times as long.
    inputs, targets = x.detach().cpu().numpy(), y.detach().cpu().numpy()
    for index in rng.permutation(len(x)).tolist():
        first.setdefault(inputs[index].tobytes() + targets[index].tobytes(), index)
        if len(first) == wanted:
            break
    if len(first) < folds:
        return [np.arange(len(x), dtype=np.int64)]
    chosen = np.array(list(first.values()), dtype=np.int64)
    return [np.resize(part, size) for part in np.array_split(chosen, folds)]


def _folds_of_subjects(subjects: IntArray, folds: int, size: int, rng: np.random.Generator) -> list[IntArray]:
    """Return folds of whole subjects, in random order each to the smallest fold so far; of large ones a part each."""
    different = np.unique(subjects)
    if len(different) < folds:
        return [np.arange(len(subjects), dtype=np.int64)]
    order = rng.permutation(len(subjects))
    # One sort for all subjects, which keeps the random order of each one's records.
    records = order[np.argsort(subjects[order], kind="stable")]
    ends = np.searchsorted(subjects[records], different, side="right")
    own = dict(zip(different.tolist(), np.split(records, ends[:-1]), strict=True))
    parts: list[list[IntArray]] = [[] for _ in range(folds)]
    sizes = [0] * folds
    for subject in rng.permutation(different).tolist():
        smallest = sizes.index(min(sizes))
        parts[smallest].append(own[subject])
        sizes[smallest] += len(own[subject])
    return [np.resize(rng.permutation(np.concatenate(part)), size) for part in parts]


def fold_changes(
    module: Module,
    state: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: str,
    folds: list[IntArray],
    steps: int,
    rng: np.random.Generator,
    untrained: Collection[str] = (),
    rate: float = LEARNING_RATE,
    clip_norm: float | None = None,
    precision: Precision = "float32",
    augment: Callable[[Tensor], Tensor] | None = None,
) -> Float32:
    """Train a model on each fold alone, by so many steps of Adam on all of the fold; return what each changes.

    Samples of classes are weighted, see `class_weights`. Networks that can be computed side by side are, all folds by
    one step: on some fifteen samples call overhead dominates a step.

    Parameters
    ----------
    module
        Computes; nothing is said of its parameters afterwards.
    state
        The model from which each training starts.
    x, y
        All of the client's inputs and targets.
    folds
        Indices of samples.
    steps
        Of each training, at least 1.
    rng
        Seeds dropout.
    untrained
        Names of the entries that no gradient moves; counters need not be named.
    rate
        Of Adam.
    clip_norm, precision, augment
        See `florets.task.training.loop.TrainSettings` and `florets.task.training.objective.Objective`. With
        bfloat16 or augmentation each fold is computed alone.

    Returns
    -------
    (m, D) float32
        Change of the trainable parameters, in the order of the state.
    """
    network = network_of(module)
    if network is not None and len(folds) > 1 and precision == "float32" and augment is None:
        return _side_by_side(network, state, x, y, loss, folds, steps, rate, clip_norm)
    names = [name for name, value in state.items() if value.is_floating_point() and name not in untrained]
    before = _flat(state, names)
    changes = []
    for fold in folds:
        load(module, state)
        rows = torch.from_numpy(fold).to(x.device)
        settings = TrainSettings(
            rate, 1, len(fold), "adam", local_steps=steps, clip_norm=clip_norm, precision=precision
        )
        objective = Objective(weights=_weights(y[rows]) if loss == "cross_entropy" else None, augment=augment)
        if len(fold) == 1:
            # Batch norm has no variance of one sample: its layers stay as they are.
            objective = replace(objective, frozen=_normalising(module))
        local_update(module, x[rows], y[rows], loss, settings, rng, objective)
        changes.append(_flat(module.state_dict(), names) - before)
    return np.stack(changes)


def _side_by_side(
    network: Network,
    state: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: str,
    folds: list[IntArray],
    steps: int,
    rate: float,
    clip_norm: float | None,
) -> Float32:
    """Train one model on each fold as `fold_changes` says, of each layer all folds' by one call."""
    rows = torch.from_numpy(np.stack(folds)).to(x.device)
    count_of_folds, size = rows.shape
    inputs, targets = x[rows], targets_of(x[rows.flatten()], y[rows.flatten()], loss)
    weights = torch.ones(1, 1, device=x.device)
    if loss == "cross_entropy":
        weights = torch.stack([_weights(y[fold]) for fold in rows])
    start = {name: state[name].to(x.device).unsqueeze(0) for name in network.names}
    trained = {name: value.repeat_interleave(count_of_folds, 0).requires_grad_() for name, value in start.items()}
    optimizer = Adam(list(trained.values()), rate, 0.0)
    for _ in range(steps):
        for parameter in trained.values():
            parameter.grad = None
        losses = per_sample_losses(network.outputs(trained, inputs).flatten(0, 1), targets, loss)
        # Each fold's mean depends on its own parameters alone: the sum has all their gradients.
        ((losses.view(count_of_folds, size) * weights).sum() / size).backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            clip_rows(list(trained.values()), clip_norm)
        optimizer.step()
    count(gradients=steps * rows.numel())
    return np.concatenate(
        [(value.detach() - start[name]).flatten(1).cpu().numpy() for name, value in trained.items()], axis=1
    ).astype(np.float32)


def _weights(labels: Tensor) -> Tensor:
    """Return the weight of each sample of a fold.

    Which classes a fold happens to hold is noise, and what classes a client has more of is an effect of its own that
    hides its group's: both weigh less then. Groups that differ by their classes alone are still found, which full
    balance (without the root) makes harder. The counts are the fold's own, and not the client's: the folds would
    compensate each other, and the test of discovery needs folds that are independent.
    """
    return class_weights(labels, "root")


def _normalising(module: Module) -> tuple[str, ...]:
    return tuple(name for name, part in module.named_modules() if name and isinstance(part, _BatchNorm))


def _flat(state: Mapping[str, Tensor], names: Sequence[str]) -> Float32:
    return np.concatenate([state[name].detach().cpu().numpy().ravel() for name in names]).astype(np.float32)
