"""Read what clients send in phase 1 of mixed regression; as in `replies`, nothing in a reply is trusted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, Layout, MalformedMessage, read_array
from florets.task.wire.replies import Update, example_count, finite_number, reply_metrics, update_vector

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Term:
    """Reply to `query.subspace`: the client's products with the bases, float32 (A, R, k)."""

    values: Values
    num_examples: int


@dataclass(frozen=True)
class LocalFactors:
    """Reply to `query.moments`: factors (A, p, R) of the client's moment matrices; equal where it sent one."""

    left: Values
    right: Values
    num_examples: int


@dataclass(frozen=True)
class AnchorUpdate(Update):
    """Reply to `train.moment_descent`: the next estimate (R,), and the size of the residual before the step."""

    residual: float = 0.0


def read_term(content: RecordDict, shape: tuple[int, int, int]) -> Term:
    """Read a client's term of the orthogonal iteration.

    Raises
    ------
    MalformedMessage
        If keys, types, the shape or a value is wrong.
    """
    metrics = reply_metrics(content, {kinds.NUM_EXAMPLES}, arrays=True)
    return Term(_values(content, {kinds.TERMS: shape})[kinds.TERMS], example_count(metrics))


def read_factors(content: RecordDict, shape: tuple[int, int, int], symmetric: bool) -> LocalFactors:
    """Read a client's factors, each (A, p, R); with `symmetric` it must send the left ones only.

    Raises
    ------
    MalformedMessage
        If keys, types, the shape or a value is wrong.
    """
    metrics = reply_metrics(content, {kinds.NUM_EXAMPLES}, arrays=True)
    sides = (kinds.LEFT,) if symmetric else (kinds.LEFT, kinds.RIGHT)
    values = _values(content, dict.fromkeys(sides, shape))
    return LocalFactors(values[sides[0]], values[sides[-1]], example_count(metrics))


def read_anchor_update(content: RecordDict, layout: Layout) -> AnchorUpdate:
    """Read an anchor's next estimate; its model is not known before the anchors are grouped, and is 0 here.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, or the residual is negative.
    """
    metrics = reply_metrics(content, {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.RESIDUAL}, arrays=True)
    residual = finite_number(metrics, kinds.RESIDUAL)
    if residual < 0:
        raise MalformedMessage(f"{kinds.RESIDUAL} is {residual}, not at least 0")
    vector, train_loss = update_vector(content, layout), finite_number(metrics, kinds.TRAIN_LOSS)
    return AnchorUpdate(0, vector, example_count(metrics), train_loss, residual=residual)


def _values(content: RecordDict, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Values]:
    arrays = content[kinds.ARRAYS]
    if not isinstance(arrays, ArrayRecord) or arrays.keys() != shapes.keys():
        found = sorted(arrays) if isinstance(arrays, ArrayRecord) else type(arrays).__name__
        raise MalformedMessage(f"record {kinds.ARRAYS!r} holds {found}, not {sorted(shapes)}")
    values = {}
    for name, shape in shapes.items():
        read = read_array(arrays[name], Entry(name, shape, "float32", 0)).astype(np.float32, copy=False)
        if not np.isfinite(read).all():
            raise MalformedMessage(f"array {name!r} holds NaN or infinite values")
        values[name] = read
    return values
