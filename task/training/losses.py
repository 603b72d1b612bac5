"""Losses of models on data; counts of samples, losses of steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

from florets.task.imported import imported, imported_for
from florets.task.settings import LOSSES, PLAIN_LOSSES, is_loss, quantile_of, scales_targets
from florets.task.training.modules import load, on_host, set_mode
from florets.task.training.scores import Scores, scores_of

# Samples of one forward pass: enough to hide the cost of a call, few enough for the processor's cache.
CHUNK = 500


def check_loss(loss: str) -> None:
    """Raise ValueError if `loss` is no known loss, or an import path that leads to no function of two arguments."""
    if not is_loss(loss):
        raise ValueError(
            f"task.loss={loss!r} is unknown. Known: {', '.join(LOSSES)}. A function of your own is given by its "
            "import path, package.module:function."
        )
    if ":" in loss:
        imported_for(f"task.loss={loss!r}", loss, ("outputs", "targets"))


def _of_function(loss: str, outputs: Tensor, targets: Tensor) -> Tensor:
    found = imported(f"task.loss={loss!r}", loss)(outputs, targets)
    if not isinstance(found, Tensor) or tuple(found.shape) != (len(targets),):
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise ValueError(
            f"task.loss={loss!r} returned {what} for {len(targets)} samples: return a tensor of one loss a sample, "
            f"shape ({len(targets)},); PyTorch's losses do with reduction='none'"
        )
    return found


def targets_of(x: Tensor, y: Tensor, loss: str) -> Tensor:
    """Return what the outputs are compared with: the flat inputs for ``reconstruction``, else `y`."""
    return x.flatten(1) if loss == "reconstruction" else y


def per_sample_losses(outputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    """Return the loss of each sample (n,), of several numbers a sample their mean; targets: see `targets_of`."""
    if loss == "cross_entropy":
        return F.cross_entropy(outputs, targets, reduction="none")
    if loss not in PLAIN_LOSSES:
        return _further_losses(outputs, targets, loss)
    # reshape, because an output (n, 1) beside targets (n,) would broadcast to (n, n) without a word.
    squares = (outputs.reshape(targets.shape) - targets).square()
    if squares.dim() > 1:
        squares = squares.flatten(1).mean(dim=1)
    return squares / 2 if loss == "half_squared_error" else squares


def _further_losses(outputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    check_loss(loss)
    if ":" in loss:
        return _of_function(loss, outputs, targets)
    outputs = outputs.reshape(targets.shape)
    if loss == "binary_cross_entropy":
        each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    elif loss == "poisson":
        # With the constant, so that it is at least 0.
        each = F.poisson_nll_loss(outputs, targets, reduction="none") + torch.lgamma(targets + 1)
    else:
        level, short = quantile_of(loss), targets - outputs
        assert level is not None
        each = torch.maximum(level * short, (level - 1) * short)
    return each.flatten(1).mean(dim=1) if each.dim() > 1 else each


def _at_least_0(loss: str, mean: float) -> float:
    if ":" in loss and mean < 0:
        raise ValueError(
            f"task.loss={loss!r} is negative for records of this client: losses are compared by their ratios, so it "
            "must be at least 0; add a constant to it"
        )
    return mean


@dataclass(frozen=True)
class Evaluated:
    """A model's test: mean loss, accuracy (None without classes), further scores, and their outputs."""

    loss: float
    accuracy: float | None
    scores: Scores
    outputs: NDArray[np.floating] | None = field(default=None, compare=False)


def evaluate(module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK) -> tuple[float, float | None]:
    """Return mean loss and accuracy of a model on a data set; see `evaluated`."""
    test = evaluated(module, x, y, loss, chunk, scored=False)
    return test.loss, test.accuracy


def evaluated(
    module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK, scored: bool = True, judged: bool = True
) -> Evaluated:
    """Return a model's test, with scores if `scored` and the accuracy of classes if `judged`; in eval mode."""
    is_classified = loss == "cross_entropy" or (":" in loss and not y.is_floating_point())
    classes = judged and is_classified
    kept: list[Tensor] = []
    right: list[Tensor] = []

    def look(outputs: Tensor, y_part: Tensor) -> None:
        if classes:
            right.append((outputs.argmax(dim=1) == y_part).sum())
        if scored and loss != "reconstruction":
            kept.append(outputs.reshape(len(y_part), -1).double())

    sums = _sums(module, x, y, loss, chunk, look)
    # Nothing is fetched from a device before all of it is on its way.
    fetched = on_host(*sums, *right, *kept, *([y] if kept else []))
    total = _at_least_0(loss, _added(value.item() for value in fetched[: len(sums)]))
    correct = sum(int(value.item()) for value in fetched[len(sums) : len(sums) + len(right)])
    accuracy = correct / len(x) if classes else None
    if not kept:
        return Evaluated(total / len(x), accuracy, {})
    outputs = np.concatenate([value.numpy() for value in fetched[len(sums) + len(right) : -1]])
    scored_as = "cross_entropy" if is_classified else loss
    has_scores = y.dim() == 1 and (is_classified or scales_targets(loss))
    scores = scores_of(outputs, fetched[-1].numpy(), scored_as) if has_scores else {}
    return Evaluated(total / len(x), accuracy, scores, outputs)


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
    bound: float | None = None,
) -> list[Tensor]:
    """Return the sum of the losses of each pass, left on its device; `look` sees each one's outputs and targets."""
    if len(x) == 0:
        raise ValueError("a loss over no samples is not defined: give every client at least one sample.")
    count(losses=len(x))
    set_mode(module, False)
    sums = []
    with torch.inference_mode():
        for start in range(0, len(x), chunk):
            x_part, y_part = x[start : start + chunk], y[start : start + chunk]
            outputs = module(x_part)
            losses = per_sample_losses(outputs, targets_of(x_part, y_part, loss), loss)
            if bound is not None:
                # A NaN, of which no comparison holds, is the worst loss.
                losses = torch.where(losses < bound, losses.clamp(min=0.0), bound)
            sums.append(losses.sum(dtype=torch.float64))
            look(outputs, y_part)
    return sums


def mean_loss(module: Module, x: Tensor, y: Tensor, loss: str, chunk: int = CHUNK) -> float:
    """Return the mean loss of a model over a data set; see `evaluated`."""
    return evaluated(module, x, y, loss, chunk, scored=False, judged=False).loss


def loss_vector(
    module: Module,
    states: Iterable[Mapping[str, Tensor]],
    x: Tensor,
    y: Tensor,
    loss: str,
    chunk: int = CHUNK,
    bound: float | None = None,
) -> NDArray[np.float64]:
    """Return the mean loss of each of K models on one client's data (K,), each sample's up to `bound`.

    Source: CLoVE Alg. 1, l. 6-8.
    """
    sums: list[Tensor] = []
    models = 0
    for models, state in enumerate(states, 1):  # noqa: B007 - their number, counted
        load(module, state)
        sums += _sums(module, x, y, loss, chunk, bound=bound)
    # All models' by one transfer, then added up pass by pass.
    values = [value.item() for value in on_host(*sums)]
    passes = len(values) // max(models, 1)
    return np.array(
        [_at_least_0(loss, _added(values[at : at + passes])) / len(x) for at in range(0, len(values), passes or 1)],
        dtype=np.float64,
    )


@dataclass
class Effort:
    """Passes of samples through models: `gradients` forward and back, `losses` forward alone."""

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
    seen: list[Tensor | float] = []
    token = _recorded.set(seen)
    try:
        yield losses
    finally:
        _recorded.reset(token)
    # All at once: a number that is asked of a device at each step waits for the step.
    fetched = iter(on_host(*(loss for loss in seen if isinstance(loss, Tensor))))
    losses += [next(fetched).item() if isinstance(loss, Tensor) else loss for loss in seen]


def recording() -> bool:
    """Return whether losses are being recorded."""
    return _recorded.get() is not None


def record(loss: Tensor | float) -> None:
    """Add the loss of a step, where losses are being recorded."""
    if (losses := _recorded.get()) is not None:
        losses.append(loss.detach() if isinstance(loss, Tensor) else loss)


def in_parts(losses: Sequence[float], number: int) -> NDArray[np.float64]:
    """Return the mean loss of each of S equal parts of a training of T steps, (S,); part s begins at s T // S."""
    if not losses or number < 1:
        raise ValueError(f"{len(losses)} losses of steps cannot make {number} parts: both must be at least 1.")
    starts = np.arange(number + 1) * len(losses) // number
    values = np.array(losses, dtype=np.float64)
    return np.array([values[a : max(a + 1, b)].mean() for a, b in pairwise(starts)])
