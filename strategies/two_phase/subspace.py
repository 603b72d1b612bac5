"""The exchanges that find the anchors' subspaces: federated orthogonal iteration, or the moments themselves."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import Replies, T
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray
from florets.strategies.two_phase.messages import MOMENTS, SUBSPACE
from florets.strategies.two_phase.moment_scale import MomentScale, factors_size, longest_columns, term_size
from florets.strategies.two_phase.orthogonal_iteration import (
    Factors,
    leading_bases,
    orthonormal_columns,
    random_bases,
    weighted_mean,
)
from florets.strategies.two_phase.settings import TwoPhaseSettings
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.moments import read_factors, read_term


def find_bases(
    context: Round,
    clients: Sequence[Client],
    estimates: FloatArray,
    settings: TwoPhaseSettings,
    scale: MomentScale,
) -> FloatArray:
    """Return each anchor's basis (A, R, k), k being the number of models (or R, where that is less).

    Parameters
    ----------
    clients
        Those asked, each with at least two examples.
    estimates : (A, R) float64
        The anchors' estimates.
    scale
        Reference size of moments, by which outliers are rejected; it is brought up to date.

    Raises
    ------
    RoundFailed
        If an exchange stays below the quorum.
    """
    records = _estimate_records(context, clients, estimates, settings.noise)
    rank = min(context.models.count, estimates.shape[1])
    with context.meter.part("subspace"):
        if settings.subspace == "direct":
            return _direct(context, clients, records, estimates.shape, rank, settings, scale)
        return _iterate(context, clients, records, estimates.shape, rank, settings, scale)


def _iterate(
    context: Round,
    clients: Sequence[Client],
    records: Mapping[str, ArrayRecord],
    shape: tuple[int, ...],
    rank: int,
    settings: TwoPhaseSettings,
    scale: MomentScale,
) -> FloatArray:
    """Alg. 3 for all anchors at once: T1 exchanges a round, not T1 for each anchor."""
    size = (shape[0], shape[1], rank)
    bases = random_bases(*size, context.random(Purpose.SUBSPACE))
    for step in range(settings.inner_steps):
        transposed = step % 2 == 0
        sent = ArrayRecord({kinds.BASES: Array(bases.astype(np.float32))})
        config = {kinds.PAIRING: settings.pairing, kinds.TRANSPOSED: int(transposed)}
        requests = [
            context.request_custom(
                SUBSPACE,
                client,
                None,
                config,
                {kinds.ESTIMATES: records[client.key], kinds.BASES: sent},
                category="query",
            )
            for client in clients
        ]
        replies = context.ask(requests, lambda _, content: read_term(content, size))
        unit = longest_columns(bases)
        replies = _reject_outliers(context, replies, [term_size(term.values, unit) for _, term in replies.ok], scale)
        context.require(replies, "term of the moments")
        weights = _weights([term.num_examples for _, term in replies.ok], settings)
        mean = weighted_mean((term.values for _, term in replies.ok), weights)
        bases = mean if transposed else orthonormal_columns(mean)
    return bases


def _direct(
    context: Round,
    clients: Sequence[Client],
    records: Mapping[str, ArrayRecord],
    shape: tuple[int, ...],
    rank: int,
    settings: TwoPhaseSettings,
    scale: MomentScale,
) -> FloatArray:
    all_pairs = settings.pairing == "all"
    # A client's matrix has as many rows as it said it has examples, whatever it claims now.
    rows = {client.key: client.num_examples if all_pairs else 1 for client in clients}
    symmetric = all_pairs and settings.noise == 0
    config = {kinds.PAIRING: settings.pairing}
    requests = [
        context.request_custom(
            MOMENTS, client, None, config, {kinds.ESTIMATES: records[client.key]}, category="query"
        )
        for client in clients
    ]
    replies = context.ask(
        requests, lambda key, content: read_factors(content, (shape[0], rows[key], shape[1]), symmetric)
    )
    sizes = [factors_size(local.left, local.right, all_pairs) for _, local in replies.ok]
    replies = _reject_outliers(context, replies, sizes, scale)
    context.require(replies, "set of moments")
    weights = _weights([local.num_examples for _, local in replies.ok], settings)
    local = [
        Factors(np.asarray(found.left, np.float64), np.asarray(found.right, np.float64), all_pairs)
        for _, found in replies.ok
    ]
    return leading_bases(local, weights, rank, context.random(Purpose.SUBSPACE))


def _reject_outliers(context: Round, replies: Replies[T], sizes: list[float], scale: MomentScale) -> Replies[T]:
    """Return the replies without those whose moments no benign data give: one would turn all the subspaces."""
    mask = scale.judge(np.array(sizes))
    keys = {key for (key, _), is_outlier in zip(replies.ok, mask, strict=True) if is_outlier}
    return context.reject(replies, keys, "rejected as an outlier: its moments are far larger than the others'")


def _weights(examples: list[int], settings: TwoPhaseSettings) -> FloatArray:
    """Return the clients' weights: with one pair each, all count alike (Phase 1's Y); else n_i (Alg. 3)."""
    return np.ones(len(examples)) if settings.pairing == "single" else np.array(examples, dtype=np.float64)


def _estimate_records(
    context: Round, clients: Sequence[Client], estimates: FloatArray, noise: float
) -> dict[str, ArrayRecord]:
    """Return what each client is told of the estimates; one shared record where all are told the same."""
    if noise == 0:
        shared = ArrayRecord({kinds.LEFT: Array(estimates.astype(np.float32))})
        return {client.key: shared for client in clients}
    records = {}
    for client in clients:
        rng = generator(context.seed, context.server_round, Purpose.ANCHOR_NOISE, client.number)
        left, right = estimates + noise * rng.standard_normal((2, *estimates.shape))
        records[client.key] = ArrayRecord(
            {kinds.LEFT: Array(left.astype(np.float32)), kinds.RIGHT: Array(right.astype(np.float32))}
        )
    return records
