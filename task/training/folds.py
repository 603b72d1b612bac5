"""Training of one model on each of several disjoint folds of a client's data, for discovery."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from florets.task.settings import PLAIN_LOSSES
from florets.task.training.linear import CURVATURES, LinearNames, flat, linear_names
from florets.task.training.loop import train
from florets.task.training.losses import count
from florets.task.training.modules import load
from florets.task.training.networks import network_of
from florets.task.training.newton import newton_update, parameters_of, second_order
from florets.task.training.objective import Objective
from florets.task.training.settings import Training
from florets.task.training.vectorised import Share, stacked_update
from florets.task.wire.folds import LEARNING_RATE

IntArray = NDArray[np.int64]
Float32 = NDArray[np.float32]


def disjoint_folds(
    x: Tensor, y: Tensor, folds: int, size: int, rng: np.random.Generator, subjects: Tensor | None = None
) -> list[IntArray]:
    """Draw disjoint folds of equal size, int64 (size,) each: equal records in one fold, and all of a subject's.

    Detected near-duplicates share a fold, as a subject's records do. Where there are too few records each fold
    repeats its own. Fewer different records (or subjects) than folds cannot be divided: one fold of all n samples.
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
    alike = near_duplicates(inputs[chosen[:_MOST_COMPARED]], folds)
    if alike is not None:
        return [chosen[part] for part in _folds_of_subjects(alike, folds, size, rng)]
    return [np.resize(part, size) for part in np.array_split(chosen, folds)]


_MOST_COMPARED = 1000
"""Records of a client whose pairs are compared, some 50 ms of them; folds of near-duplicates are of these alone."""
_LEAST_DISTINCT, _LEAST_UNITS, _LEAST_JOINED = 16, 8, 0.25
"""Records among which near-duplicates are looked for, units that they form, and share of the links within units."""
_APART, _SPREADS = 2.0, 3.0
"""Links between units are longer than those within by this factor, and by so many spreads of their own logarithms: in
few dimensions links of all lengths occur."""


def near_duplicates(records: NDArray[Any], least: int = 2) -> IntArray | None:
    """Return the unit (n,) of each record, near-duplicates in one; None where there are none, or few.

    The links of a minimum spanning tree then have a gap: a quarter or more are short, and the others, between units,
    are at least twice as long. Such records in different folds agree, and each client looks like a group by itself.
    """
    points = records.reshape(len(records), -1).astype(np.float64)
    points -= points.mean(axis=0)
    energy = (points**2).sum(axis=1)
    squares = energy[:, None] + energy - 2.0 * (points @ points.T)
    order, links = _spanning_tree(squares)
    lengths = np.sort(links[links > 1e-12 * energy.max(initial=0.0)])
    if len(lengths) + 1 < _LEAST_DISTINCT:
        return None
    logs = 0.5 * np.log(lengths)
    gaps = np.diff(logs)
    first, last = math.ceil(_LEAST_JOINED * len(logs)) - 1, len(gaps) - max(_LEAST_UNITS, least) + 2
    for short in np.argsort(-gaps[first:last], kind="stable") + first:
        if gaps[short] < math.log(_APART):
            return None
        if gaps[short] >= _SPREADS * logs[short + 1 :].std():
            units = np.empty(len(order), dtype=np.int64)
            units[order] = np.concatenate([[0], np.cumsum(links > lengths[short])])
            return units
    return None


def _spanning_tree(squares: NDArray[np.float64]) -> tuple[IntArray, NDArray[np.float64]]:
    """Return records in the order of Prim's algorithm (n,), and the squared lengths of its links (n - 1,)."""
    count = len(squares)
    order, links = np.zeros(count, dtype=np.int64), np.empty(max(count - 1, 0))
    nearest = squares[0].copy()
    nearest[0] = np.inf
    done = np.zeros(count)
    done[0] = np.inf
    for step in range(1, count):
        order[step] = reached = int(nearest.argmin())
        links[step - 1] = nearest[reached]
        done[reached] = np.inf
        np.minimum(nearest, squares[reached], out=nearest)
        np.maximum(nearest, done, out=nearest)
    return order, links


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


def on_folds(training: Training, steps: int, rate: float = LEARNING_RATE) -> Training:
    """Return the training on a fold: so many steps of Adam on all of it, otherwise as a client trains."""
    return replace(
        training,
        learning_rate=rate,
        local_steps=steps,
        optimizer="adam",
        momentum=0.0,
        weight_decay=0.0,
    )


def fold_changes(
    module: Module,
    state: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: str,
    folds: list[IntArray],
    training: Training,
    rng: np.random.Generator,
    untrained: Collection[str] = (),
) -> Float32:
    """Train a model on each fold alone, in steps on all of the fold; return what each changes, (m, D) float32."""
    training = replace(training, batch_size=len(folds[0]))
    names = [name for name, value in state.items() if value.is_floating_point() and name not in untrained]
    rows = [torch.from_numpy(fold).to(x.device) for fold in folds]
    weights = [class_weights(y[fold]) if loss == "cross_entropy" else None for fold in rows]
    network, after = network_of(module), list[Mapping[str, NDArray[Any]]]()
    if network is not None and loss in PLAIN_LOSSES and len(folds) > 1:
        own = {name: value.to(x.device) for name, value in state.items()}
        shares = [
            Share(own, x[fold], y[fold], lambda: rng, weights=weight)
            for fold, weight in zip(rows, weights, strict=True)
        ]
        after += [trained.arrays for trained in stacked_update(network, shares, loss, training)]
        count(gradients=(training.local_steps or 0) * sum(map(len, folds)))
    else:
        for fold, weight in zip(rows, weights, strict=True):
            load(module, state)
            # Batch norm has no variance of one sample: its layers stay as they are.
            frozen = _normalising(module) if len(fold) == 1 else ()
            train(module, x[fold], y[fold], loss, training, rng, Objective((), weight, frozen))
            after.append({name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()})
    start = _flat({name: value.detach().cpu().numpy() for name, value in state.items()}, names)
    return np.stack([_flat(arrays, names) - start for arrays in after])


_RIDGE, _STEPS = 1.0, 8
"""Of an estimate on a fold: the curvature by which it is drawn to the common model, and Newton steps."""


def rows_of_folds(
    module: Module,
    state: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: str,
    parts: list[IntArray],
    size: int,
    training: Training,
    rng: np.random.Generator,
    untrained: Collection[str] = (),
    estimates: bool = False,
) -> Float32:
    """Return a client's rows (m, D) of unit length, or with `estimates` (m, 2 D), see `estimates_on`."""
    names = linear_names(module, loss) if estimates else None
    start = state if names is None else {name: torch.zeros_like(value) for name, value in state.items()}
    # One part is of data that cannot be divided.
    folds = [part[:size] for part in parts] if len(parts) > 1 else parts
    changes = fold_changes(module, start, x, y, loss, folds, training, rng, untrained)
    if not estimates:
        return changes
    own = np.zeros_like(changes) if names is None else estimates_on(names, state, x, y, loss, parts, training)
    return np.concatenate([_of_length_one(changes), _of_length_one(own)], axis=1)


def estimates_on(
    names: LinearNames,
    state: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: str,
    parts: list[IntArray],
    training: Training,
) -> Float32:
    """Return how far a linear model's exact estimate on each part lies from the common one, (m, D) float32.

    Distances are in standard errors: with H the Hessian at the estimate, a row is of the quadratic form of H in the
    difference. First come the coefficients, whatever the levels are, then the levels (biases), given the common
    coefficients::

        (H_cc - H_cb H_bb^-1 H_bc)^1/2 d_c,    H_bb^1/2 (d_b + H_bb^-1 H_bc d_c)

    Where clients are alike all entries are noise of variance 1, whatever their number of records and however
    correlated their inputs. A ridge draws each estimate to the common model, so that there is one on fewer records
    than columns.
    """
    arrays = {name: value.detach().cpu().numpy() for name, value in state.items()}
    common, (inputs, targets) = parameters_of(names, arrays), flat(x.cpu(), y.cpu())
    num_levels = 0 if names.bias is None else arrays[names.bias].size
    plain, rows = replace(training, solver="newton", ridge=0.0, local_steps=_STEPS), list[NDArray[np.float64]]()
    for part in map(np.unique, parts):
        data = inputs[part], targets[part]
        # The term of FedProx is one on the mean loss.
        found, _, _ = newton_update(names, arrays, *data, loss, plain, _RIDGE * CURVATURES.get(loss, 1.0) / len(part))
        estimate = parameters_of(names, found)
        hessian = second_order(estimate, *data, loss, names.bias is not None).hessian
        rows.append(_in_errors(estimate - common, hessian + _RIDGE * np.eye(len(common)), num_levels))
    return np.stack(rows).astype(np.float32)


def _in_errors(change: NDArray[np.float64], hessian: NDArray[np.float64], num_levels: int) -> NDArray[np.float64]:
    count = len(change) - num_levels
    own, cross = hessian[:count, :count], hessian[:count, count:]
    levels = hessian[count:, count:]
    given = np.linalg.solve(levels, cross.T) if num_levels else np.zeros((0, count))
    return np.concatenate(
        [_root(own - cross @ given) @ change[:count], _root(levels) @ (change[count:] + given @ change[:count])]
    )


def _root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root of a symmetric, positive semi-definite matrix; rounding may have moved eigenvalues below 0."""
    values, vectors = np.linalg.eigh(matrix)
    root: NDArray[np.float64] = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _of_length_one(rows: Float32) -> Float32:
    length = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return (rows / np.where(length > 0.0, length, 1.0)).astype(np.float32)


def class_weights(labels: Tensor) -> Tensor:
    """Return the weight of each sample of a fold (n,), of mean 1: one over the square root of its class's count."""
    weights = torch.bincount(labels).to(torch.float32)[labels].rsqrt()
    return weights / weights.mean()


def _normalising(module: Module) -> tuple[str, ...]:
    return tuple(name for name, part in module.named_modules() if name and isinstance(part, _BatchNorm))


def _flat(arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> Float32:
    return np.concatenate([arrays[name].ravel() for name in names]).astype(np.float32)
