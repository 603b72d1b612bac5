"""Subspaces of two-phase's anchors, found with many clients' moments: by orthogonal iteration, or directly."""

from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.exchange import Replies, T
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray
from florets.strategies.two_phase import messages
from florets.strategies.two_phase.moment_algebra import (
    factors_size,
    leading_bases,
    longest_columns,
    orthonormal_columns,
    outlier_moments,
    term_size,
)
from florets.strategies.two_phase.settings import TwoPhaseState
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds

INNER_STEPS = 4
"""T1, exchanges of an orthogonal iteration, an even number."""


def bases(
    r: Round, state: TwoPhaseState, clients: Sequence[Client], estimates: FloatArray, directly: bool
) -> FloatArray:
    """Return each anchor's basis (A, R, k), k being the number of models (or R, where that is less)."""
    sent = ArrayRecord({kinds.ESTIMATES: Array(estimates.astype(np.float32))})
    size = (*estimates.shape, min(r.models.count, estimates.shape[1]))
    with r.meter.part("subspace"):
        return (_direct if directly else _iterate)(r, state, sent, size, clients)


def _iterate(
    r: Round, state: TwoPhaseState, estimates: ArrayRecord, size: tuple[int, int, int], clients: Sequence[Client]
) -> FloatArray:
    """Alg. 3 for all anchors at once: T1 exchanges a round, not T1 for each anchor.

    Moment matrices are symmetric, so that each step multiplies by Y, where the paper takes Y^T and Y in turn.
    """

    def read(_: str, content: RecordDict) -> messages.Term:
        return codec.read(messages.Term, content, A=size[0], R=size[1], k=size[2])

    bases = orthonormal_columns(r.random(Purpose.SUBSPACE).standard_normal(size))  # Alg. 3, l. 1
    for step in range(INNER_STEPS):
        sent = {
            kinds.ESTIMATES: estimates,
            kinds.BASES: ArrayRecord({kinds.BASES: Array(bases.astype(np.float32))}),
        }
        requests = [r.request_custom(messages.SUBSPACE, one, None, {}, sent, category="query") for one in clients]
        replies = r.ask(requests, read)
        unit = longest_columns(bases)
        replies = _without_outliers(r, state, replies, [term_size(term.terms, unit) for _, term in replies.ok])
        r.require(replies, "term of the moments")
        weights = np.array([term.num_examples for _, term in replies.ok], dtype=np.float64)
        shares = zip(weights / weights.sum(), replies.ok, strict=True)
        mean = sum((share * term.terms.astype(np.float64) for share, (_, term) in shares), start=np.zeros(size))
        bases = mean if step % 2 == 0 else orthonormal_columns(mean)
    return bases


def _direct(
    r: Round, state: TwoPhaseState, estimates: ArrayRecord, size: tuple[int, int, int], clients: Sequence[Client]
) -> FloatArray:
    """Decompose the matrices that follow from the moments of single samples, in one exchange."""
    # A client has as many moments as it said it has examples, whatever it claims now.
    rows = {client.key: client.num_examples for client in clients}

    def read(key: str, content: RecordDict) -> messages.LocalFactors:
        return codec.read(messages.LocalFactors, content, A=size[0], p=rows[key], R=size[1])

    sent = {kinds.ESTIMATES: estimates}
    requests = [r.request_custom(messages.MOMENTS, one, None, {}, sent, category="query") for one in clients]
    replies = r.ask(requests, read)
    replies = _without_outliers(r, state, replies, [factors_size(local.moments) for _, local in replies.ok])
    r.require(replies, "set of moments")
    weights = np.array([local.num_examples for _, local in replies.ok], dtype=np.float64)
    return leading_bases([local for _, local in replies.ok], weights, size[2], r.random(Purpose.SUBSPACE))


def _without_outliers(r: Round, state: TwoPhaseState, replies: Replies[T], sizes: list[float]) -> Replies[T]:
    """Return the replies without those whose moments no benign data give: one would turn all the subspaces."""
    mask, state.scale = outlier_moments(np.array(sizes), state.scale)
    keys = {key for (key, _), is_outlier in zip(replies.ok, mask, strict=True) if is_outlier}
    return r.reject(replies, keys, "rejected as an outlier: its moments are far larger than the others'")
