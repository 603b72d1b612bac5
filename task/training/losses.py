"""Losses of models on data, the count of samples computed, and the record of each step's loss."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

from florets.task.training.modules import load, on_host, set_mode
from florets.task.training.scores import Scores, scores_of


@dataclass
class Effort:
    """Passes of samples through models.

    Parameters
    ----------
    gradients
        Gradient evaluations: passes forward and back, one for each sample and model.
    losses
        Loss evaluations: passes forward alone.
    """

    gradients: int = 0
    losses: int = 0


_counting: ContextVar[Effort | None] = ContextVar("effort", default=None)


class counted:
    """Count what is computed within the block, which is given an `Effort`."""

    def __enter__(self) -> Effort:
        """Begin to count."""
        effort = Effort()
        self._token: Token[Effort | None] = _counting.set(effort)
        return effort

    def __exit__(self, *_: object) -> None:
        """Go on with the count that was taken before."""
        _counting.reset(self._token)


def count(gradients: int = 0, losses: int = 0) -> None:
    """Add to the count, where one is taken."""
    if (effort := _counting.get()) is not None:
        effort.gradients += gradients
        effort.losses += losses


_recorded: ContextVar[list[Tensor | float] | None] = ContextVar("step_losses", default=None)


@contextmanager
def recorded() -> Iterator[list[float]]:
    """Record the mean loss of each step's batch, as seen before the step, within the block; read them after it."""
    losses: list[float] = []
    found: list[Tensor | float] = []
    token = _recorded.set(found)
    try:
        yield losses
    finally:
        _recorded.reset(token)
    # All at once: a number that is asked of a device at each step waits for the step.
    fetched = iter(on_host(*(loss for loss in found if isinstance(loss, Tensor))))
    losses += [next(fetched).item() if isinstance(loss, Tensor) else loss for loss in found]


def recording() -> bool:
    """Return whether losses are being recorded."""
    return _recorded.get() is not None


def record(loss: Tensor | float) -> None:
    """Add the loss of a step, where losses are being recorded."""
    if (losses := _recorded.get()) is not None:
        losses.append(loss.detach() if isinstance(loss, Tensor) else loss)


def in_parts(losses: Sequence[float], number: int) -> NDArray[np.float64]:
    """Return the mean loss of each of a number of equal parts of a training, from its first step to its last.

    Of as many steps as parts these are the steps' losses; of fewer some stand for several parts, so that trainings
    of different lengths can be compared.

    Parameters
    ----------
    losses
        Of each of T steps.
    number
        S, at least 1.

    Returns
    -------
    (S,) float64
        Part s begins with step floor(s T / S), has at least one, and ends before the next part's.

    Raises
    ------
    ValueError
        If there is no loss, or `number` is below 1.
    """
    if not losses or number < 1:
        raise ValueError(f"{len(losses)} losses of steps cannot make {number} parts: both must be at least 1.")
    starts = np.arange(number + 1) * len(losses) // number
    values = np.array(losses, dtype=np.float64)
    return np.array([values[a : max(a + 1, b)].mean() for a, b in pairwise(starts)])


Loss = Literal["cross_entropy", "squared_error", "half_squared_error", "reconstruction"]

# Samples of one forward pass: enough to hide the cost of a call, few enough for the processor's cache.
CHUNK = 500


def check_loss(loss: str) -> None:
    """Raise ValueError if `loss` is no known loss."""
    if loss not in get_args(Loss):
        raise ValueError(f"task.loss={loss!r} is unknown. Known: {', '.join(get_args(Loss))}.")


def targets_of(x: Tensor, y: Tensor, loss: str) -> Tensor:
    """Return what the outputs are compared with: the flat inputs for ``reconstruction``, else `y`."""
    return x.flatten(1) if loss == "reconstruction" else y


def per_sample_losses(outputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    """Return the loss of each sample.

    Parameters
    ----------
    outputs
        Of the model: logits (n, C), values (n, 1) or (n,), or reconstructions (n, d).
    targets
        Class labels (n,), values (n,), or flat inputs (n, d); see `targets_of`.
    loss
        ``cross_entropy`` (in nats), ``squared_error``, ``half_squared_error`` (with factor 1/2), or
        ``reconstruction`` (squared error, mean over the d entries).

    Returns
    -------
    Tensor
        (n,)

    Raises
    ------
    ValueError
        If `loss` is unknown.
    """
    if loss == "cross_entropy":
        return F.cross_entropy(outputs, targets, reduction="none")
    if loss == "squared_error":
        # reshape, because an output (n, 1) beside targets (n,) would broadcast to (n, n) without a word.
        return (outputs.reshape(targets.shape) - targets).square()
    if loss == "half_squared_error":
        return (outputs.reshape(targets.shape) - targets).square() / 2
    if loss == "reconstruction":
        return (outputs.reshape(targets.shape) - targets).square().mean(dim=1)
    check_loss(loss)
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Evaluated:
    """What a model came to on a data set, from one pass over it.

    Parameters
    ----------
    loss, accuracy
        See `evaluate`.
    scores
        Further scores; none where they were not asked for, or the targets are the inputs.
    outputs
        Logits (n, C), or values (n, 1), of which the scores are; None where there are none.
    """

    loss: float
    accuracy: float | None
    scores: Scores
    outputs: NDArray[np.floating] | None = field(default=None, compare=False)


def evaluate(module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK) -> tuple[float, float | None]:
    """Return mean loss and accuracy of a model on a data set, from one pass over it.

    Parameters
    ----------
    module
        The model; it is put into eval mode and left there.
    x, y
        Inputs (n, *input_shape) and targets (n,).
    loss
        See `per_sample_losses`.
    chunk
        Samples of one forward pass; changes the result by rounding at most.

    Returns
    -------
    tuple
        The mean of the per-sample losses, summed in float64 (a NaN passes through), and the share of samples
        whose largest output is their class, None where there are no classes.

    Raises
    ------
    ValueError
        If there is no sample, or `loss` is unknown.
    """
    found = evaluated(module, x, y, loss, chunk, scored=False)
    return found.loss, found.accuracy


def evaluated(
    module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK, scored: bool = True, judged: bool = True
) -> Evaluated:
    """Return what a model comes to on a data set; see `evaluate`.

    It has further scores where `scored`, and of classes the accuracy where `judged`.
    """
    classes = judged and loss == "cross_entropy"
    kept: list[Tensor] = []
    right: list[Tensor] = []

    def look(outputs: Tensor, y_part: Tensor) -> None:
        if classes:
            right.append((outputs.argmax(dim=1) == y_part).sum())
        if scored and loss != "reconstruction":
            kept.append(outputs.reshape(len(y_part), -1).double())

    sums = _sums(module, x, y, loss, chunk, look)
    # Nothing is fetched from a device before all of it is on its way.
    found = on_host(*sums, *right, *kept, *([y] if kept else []))
    total = _added(value.item() for value in found[: len(sums)])
    correct = sum(int(value.item()) for value in found[len(sums) : len(sums) + len(right)])
    accuracy = correct / len(x) if classes else None
    if not kept:
        return Evaluated(total / len(x), accuracy, Scores())
    outputs = np.concatenate([value.numpy() for value in found[len(sums) + len(right) : -1]])
    return Evaluated(total / len(x), accuracy, scores_of(outputs, found[-1].numpy(), loss), outputs)


def _added(values: Iterable[float]) -> float:
    """Add numbers one after the other: from Python 3.12 on `sum` rounds otherwise, and bits are the same on all."""
    total = 0.0
    for value in values:
        total += value
    return total


def _sums(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    chunk: int,
    look: Callable[[Tensor, Tensor], None] = lambda outputs, y_part: None,
) -> list[Tensor]:
    """Return the sum of the losses of each pass, left on its device; `look` sees each one's outputs and targets.

    Raises
    ------
    ValueError
        If there is no sample.
    """
    if len(x) == 0:
        raise ValueError("a loss over no samples is not defined: give every client at least one sample.")
    count(losses=len(x))
    set_mode(module, False)
    sums = []
    with torch.inference_mode():
        for start in range(0, len(x), chunk):
            x_part, y_part = x[start : start + chunk], y[start : start + chunk]
            outputs = module(x_part)
            sums.append(per_sample_losses(outputs, targets_of(x_part, y_part, loss), loss).sum(dtype=torch.float64))
            look(outputs, y_part)
    return sums


def mean_loss(module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK) -> float:
    """Return the mean per-sample loss of a model in eval mode over a whole data set; see `evaluate`.

    Source: CLoVE Sec. 3, the empirical loss of a client.
    """
    return evaluated(module, x, y, loss, chunk, scored=False, judged=False).loss


def loss_vector(
    module: Module,
    states: Iterable[Mapping[str, Tensor]],
    x: Tensor,
    y: Tensor,
    loss: str,
    chunk: int = CHUNK,
) -> NDArray[np.float64]:
    """Return the mean loss of each of K models on one client's data.

    Parameters
    ----------
    module
        A module of the models' shape, used as scratch: afterwards its parameters are those of the last model.
    states
        K state dicts, taken one after the other.
    x, y, loss, chunk
        See `evaluate`.

    Returns
    -------
    ndarray
        float64 (K,)

    Source: CLoVE Alg. 1, l. 6-8.
    """
    sums: list[Tensor] = []
    for state in states:
        load(module, state)
        sums += _sums(module, x, y, loss, chunk)
    # All models' by one transfer, then added up pass by pass.
    values = [value.item() for value in on_host(*sums)]
    passes = -(-len(x) // chunk)
    return np.array(
        [_added(values[at : at + passes]) / len(x) for at in range(0, len(values), passes)], dtype=np.float64
    )
