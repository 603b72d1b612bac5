"""The anchors' subspaces: exchanges, orthogonal iteration or factors, and outliers among the moments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, svds

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import Replies, T
from florets.strategies.base.report import Client
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import LEAST_CLIENTS, UPDATE_FACTOR, lower_median
from florets.strategies.core.threads import one_thread
from florets.strategies.two_phase.messages import MOMENTS, SUBSPACE, LocalFactors, Term, TwoSidedFactors
from florets.strategies.two_phase.settings import TwoPhaseSettings
from florets.task.randomness import Purpose, generator
from florets.task.wire import codec, kinds

MOMENT_FACTOR = UPDATE_FACTOR**2
"""Multiple of the median client's moments above which moments are outliers: gradients all over 1000 times as large.

In an orthogonal iteration it can be fewer. After its first step the bases lean towards a client of large gradients,
and show less of the others' moments. Of 20 clients with one random gradient each (k = 3, T1 = 4) one of 100 times as
large gradients was refused for R = 20,000, of 200 times for R = 2000 and of 500 times for R = 100; where half of
each gradient was common to all, none of up to 500 times.
"""


@dataclass
class MomentScale:
    """The size of the median client's moments, the reference for outliers.

    It is the largest of the run so far: moments shrink as anchors come near the models of most clients, and the
    moments of the others, which do not shrink, must not become outliers by that.
    """

    value: float = 0.0

    def judge(self, sizes: FloatArray, factor: float = MOMENT_FACTOR) -> BoolArray:
        """Raise the reference to one exchange's median; return the mask (M,) of sizes above `factor` times it.

        Parameters
        ----------
        sizes : (M,) float
            Each client's `term_size` or `factors_size`, finite; of fewer than three clients none is an outlier.
        factor : float
            How many times is too much, at least 1.
        """
        if len(sizes) < LEAST_CLIENTS:
            return np.zeros(len(sizes), dtype=bool)
        self.value = max(self.value, lower_median(sizes))
        mask: BoolArray = sizes > factor * self.value
        return mask & (self.value > 0)


def longest_columns(bases: FloatArray) -> FloatArray:
    """Return the length (A,) of each anchor's longest column of `bases` (A, R, k), the unit of `term_size`."""
    lengths: FloatArray = np.sqrt(np.square(bases).sum(axis=1).max(axis=1, initial=0.0))
    return lengths


def term_size(term: NDArray[np.floating], unit: FloatArray) -> float:
    """Return the size of a client's moment matrices, as far as its products with bases show it.

    Parameters
    ----------
    term : (A, R, k) float
        The products, finite.
    unit : (A,) float
        `longest_columns` of the bases that were multiplied, so that the sizes of all steps of an orthogonal iteration
        can be compared: only every second one starts from orthonormal columns.
    """
    largest = np.abs(term).max(axis=(1, 2), initial=0.0).astype(np.float64)
    return float((largest / np.where(unit > 0, unit, 1.0)).max(initial=0.0))


def factors_size(left: NDArray[np.floating], right: NDArray[np.floating], all_pairs: bool) -> float:
    """Return a bound on the size of a client's moment matrices, from their factors (A, p, R).

    At the anchor where it is largest, the mean over the pairs of the product of their gradients' lengths. One
    gradient of heavy-tailed data counts only as far as it weighs in the matrix, and not by its square. With
    `all_pairs` the matrix is the mean over all ordered pairs of different examples, else left times right.
    """
    one, other = (np.sqrt(np.einsum("apr,apr->ap", side, side, dtype=np.float64)) for side in (left, right))
    same, pairs = (one * other).sum(axis=1), left.shape[1]
    if all_pairs:
        # Rounding can leave the difference of equal sums a little below zero.
        same = np.maximum(one.sum(axis=1) * other.sum(axis=1) - same, 0.0)
        pairs *= pairs - 1
    return float(same.max(initial=0.0) / pairs)


_DENSE = 128
"""Up to this size the matrix itself is formed: it is small, and the exact decomposition is as fast."""


@dataclass(frozen=True)
class Factors:
    """One client's moment matrices as sums of outer products, for A anchors.

    Attributes
    ----------
    left, right
        (A, p, R) each.
    all_pairs
        True: Y = (s_l s_r^T - sum_j l_j r_j^T) / (p (p - 1)) with s the sums over j, the mean over all ordered pairs
        of different examples. False: Y = l_1 r_1^T, and p is 1.
    """

    left: FloatArray
    right: FloatArray
    all_pairs: bool


def random_bases(num_anchors: int, size: int, rank: int, rng: np.random.Generator) -> FloatArray:
    """Return random bases (A, R, rank) with orthonormal columns.

    Source: mixed regression, Alg. 3, l. 1.
    """
    return orthonormal_columns(rng.standard_normal((num_anchors, size, rank)))


def weighted_mean(terms: Iterable[NDArray[np.floating]], weights: FloatArray) -> FloatArray:
    """Return the weighted mean (A, R, rank) of the clients' terms, summed in float64 in the order in which they come.

    Source: mixed regression, Alg. 3, l. 6 and 9.
    """
    total: FloatArray | None = None
    for term, weight in zip(terms, weights / weights.sum(), strict=True):
        total = weight * np.asarray(term, dtype=np.float64) if total is None else total + weight * term
    if total is None:
        raise ValueError("no client's term came: there is nothing to average.")
    return total


def orthonormal_columns(stack: FloatArray) -> FloatArray:
    """Return the Q (A, R, rank) of a QR decomposition of each matrix of the stack.

    Source: mixed regression, Alg. 3, l. 9.
    """
    with one_thread():
        bases: FloatArray = np.linalg.qr(stack)[0]
    return bases


def leading_bases(clients: list[Factors], weights: FloatArray, rank: int, rng: np.random.Generator) -> FloatArray:
    """Return the first left singular vectors (A, R, rank) of each anchor's weighted mean of moment matrices.

    `rng` is for start vectors of the sparse solver, and the bases of matrices that are zero.

    Source: mixed regression, Phase 1, l. 9, by direct singular value decomposition as in its experiments (Sec. V).
    """
    bases = []
    shares = weights / weights.sum()
    for anchor in range(len(clients[0].left)):
        rows = [_rows(factors, anchor, share) for factors, share in zip(clients, shares, strict=True)]
        left, right, coefficients = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        with one_thread():
            bases.append(_left_vectors(left, right, coefficients, rank, rng))
    return np.stack(bases)


def _rows(factors: Factors, anchor: int, share: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    left, right = (np.asarray(side[anchor], dtype=np.float64) for side in (factors.left, factors.right))
    if not factors.all_pairs:
        return left, right, np.full(len(left), share)
    count = len(left)
    signs = np.append(1.0, np.full(count, -1.0))
    sums = [np.vstack([side.sum(axis=0), side]) for side in (left, right)]
    return sums[0], sums[1], signs * share / (count * (count - 1))


def _left_vectors(
    left: FloatArray, right: FloatArray, coefficients: FloatArray, rank: int, rng: np.random.Generator
) -> FloatArray:
    """Return the first left singular vectors (R, rank) of sum_p c_p l_p r_p^T."""
    size = left.shape[1]
    start: FloatArray = rng.standard_normal((size,))
    if size <= max(_DENSE, rank):
        dense: FloatArray = np.linalg.svd((left.T * coefficients) @ right)[0][:, :rank]
        return dense
    operator = LinearOperator(
        (size, size),
        matvec=lambda vector: left.T @ (coefficients * (right @ vector.ravel())),
        rmatvec=lambda vector: right.T @ (coefficients * (left @ vector.ravel())),
        dtype=np.float64,
    )
    if not operator.rmatvec(operator.matvec(start)).any():
        # All directions are alike, and the solver refuses a start vector that the matrix takes to zero.
        any_basis: FloatArray = random_bases(1, size, rank, rng)[0]
        return any_basis
    vectors, values, _ = svds(operator, k=rank, v0=start)
    # svds returns them in rising order; where the matrix has a lower rank, the rest is noise of a null space.
    leading: FloatArray = np.ascontiguousarray(vectors[:, np.argsort(values)[::-1]])
    return leading


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
        replies = context.ask(requests, lambda _, content: codec.read(Term, content, A=size[0], R=size[1], k=size[2]))
        unit = longest_columns(bases)
        replies = _reject_outliers(context, replies, [term_size(term.terms, unit) for _, term in replies.ok], scale)
        context.require(replies, "term of the moments")
        weights = _weights([term.num_examples for _, term in replies.ok], settings)
        mean = weighted_mean((term.terms for _, term in replies.ok), weights)
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

    def read(key: str, content: RecordDict) -> LocalFactors | TwoSidedFactors:
        kind: type[LocalFactors | TwoSidedFactors] = LocalFactors if symmetric else TwoSidedFactors
        return codec.read(kind, content, A=shape[0], p=rows[key], R=shape[1])

    replies = context.ask(requests, read)
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
