"""Phase 1 of two-phase: the anchors' subspaces, and descent on their moments."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, svds
from scipy.spatial.distance import pdist, squareform

from florets.strategies.base.exchange import Replies, T, log
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client, Detail
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut, one_thread
from florets.strategies.core.outliers import LEAST_CLIENTS, UPDATE_FACTOR, lower_median
from florets.strategies.two_phase import messages
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings
from florets.task.randomness import Purpose, generator
from florets.task.wire import codec, kinds
from florets.task.wire.replies import Update

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

    It is the largest of the run so far: moments shrink as anchors approach the models of most clients, and the other
    clients' moments, which do not shrink, must not become outliers for that reason.
    """

    value: float = 0.0

    def judge(self, sizes: FloatArray, factor: float = MOMENT_FACTOR) -> BoolArray:
        """Raise the reference to one exchange's median; return the mask (M,) of sizes above `factor` times it.

        The sizes are each client's `term_size` or `factors_size`; of fewer than three clients none is an outlier.
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
    """Return the size of a client's moment matrices, as far as their products (A, R, k) with bases show it.

    The `unit` (A,), `longest_columns` of the bases, makes the sizes of all steps of an orthogonal iteration
    comparable: only every second one starts from orthonormal columns.
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


def leading_bases(
    clients: Sequence[messages.LocalFactors | messages.TwoSidedFactors],
    weights: FloatArray,
    rank: int,
    all_pairs: bool,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the first left singular vectors (A, R, rank) of each anchor's weighted mean of moment matrices.

    A client's matrix is l_1 r_1^T, or with `all_pairs` the mean over all ordered pairs of different examples,
    (s_l s_r^T - sum_j l_j r_j^T) / (p (p - 1)) with s the sums over j. `rng` is for start vectors of the sparse
    solver, and the bases of matrices that are zero.

    Source: mixed regression, Phase 1, l. 9, by direct singular value decomposition as in its experiments (Sec. V).
    """
    bases = []
    shares = weights / weights.sum()
    for anchor in range(len(clients[0].left)):
        rows = [_rows(local, anchor, share, all_pairs) for local, share in zip(clients, shares, strict=True)]
        left, right, coefficients = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        with one_thread():
            bases.append(_left_vectors(left, right, coefficients, rank, rng))
    return np.stack(bases)


def _rows(
    local: messages.LocalFactors | messages.TwoSidedFactors, anchor: int, share: float, all_pairs: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    left, right = (np.asarray(side[anchor], dtype=np.float64) for side in (local.left, local.right))
    count = len(left)
    if not all_pairs:
        return left, right, np.full(count, share)
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


def num_anchors(num_clusters: int) -> int:
    """Return ceil(3 k ln k), and at least k: so many clients drawn at random miss a cluster rarely.

    Source: mixed regression, Sec. V. Deviation: the formula gives none for k = 1.
    """
    return max(num_clusters, math.ceil(3 * num_clusters * math.log(num_clusters)))


def group_exactly(estimates: FloatArray, num_groups: int) -> IntArray:
    """Group estimates (A, R) into exactly `num_groups` by average linkage; numbered by first appearance.

    Deviation: the paper joins anchors closer than Delta/2, see `group_within`. On its own settings both give the same
    groups, and this rule needs no Delta.
    """
    if len(estimates) == 1:
        return np.zeros(1, dtype=np.int64)
    return canonical(cut(linkage(pdist(estimates), method="average"), num_groups))


def group_within(estimates: FloatArray, distance: float) -> IntArray:
    """Group estimates (A, R): those nearer than `distance` to each other, directly or through others, are one group.

    Source: mixed regression, Phase 1, l. 16, with `distance` = Delta/2.
    """
    near = squareform(pdist(estimates)) < distance
    return canonical(connected_components(near, directed=False)[1].astype(np.int64))


def largest_groups(groups: IntArray, num_groups: int) -> IntArray:
    """Keep the `num_groups` largest groups, numbered by first appearance; anchors of the others get -1.

    Of groups of one size those that appear first are kept.
    """
    kept = np.argsort(-np.bincount(groups), kind="stable")[:num_groups]
    left_out = ~np.isin(groups, kept)
    result = np.full(len(groups), -1, dtype=np.int64)
    result[~left_out] = canonical(groups[~left_out])
    return result


def centres(estimates: FloatArray, groups: IntArray, bank: FloatArray) -> FloatArray:
    """Return the models (K, R): the mean of each group's estimates (A, R); a model without a group is that of `bank`.

    `groups` (A,) are the model of each anchor, -1 for none.
    """
    result = np.array(bank, dtype=np.float64)
    for group in range(len(bank)):
        members = estimates[groups == group]
        if len(members):
            result[group] = members.mean(axis=0)
    return result


@dataclass
class DescentState:
    """The anchors and their estimates.

    Attributes
    ----------
    anchors
        The A clients that descend, in the order of their keys.
    estimates
        Each anchor's current estimate, (A, R).
    groups
        Each anchor's group, (A,), -1 where it has none.
    residuals
        Residual of the last step, of the anchors that were heard.
    stopped
        Anchors that have arrived.
    used
        Clients that were asked for their moments, where they are asked once only.
    scale
        Sizes of the moments so far, to tell outliers.
    ended
        Phase 1 was ended early.
    """

    anchors: list[Client] = field(default_factory=list)
    estimates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    groups: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    residuals: dict[str, float] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    scale: MomentScale = field(default_factory=MomentScale)
    ended: bool = False

    @property
    def moving(self) -> set[str]:
        """The anchors that have not stopped."""
        return {anchor.key for anchor in self.anchors} - self.stopped

    @property
    def done(self) -> bool:
        """Whether phase 1 is over: every anchor has stopped, or it was ended early."""
        return self.ended or (bool(self.anchors) and not self.moving)

    @property
    def assignment(self) -> dict[str, int]:
        """Model of each anchor that is in a group."""
        pairs = zip(self.anchors, self.groups.tolist(), strict=True)
        return {anchor.key: group for anchor, group in pairs if group >= 0}


@dataclass(frozen=True)
class MomentDescent:
    """Phase 1: the anchors' descent along gradients within the subspaces of all clients' moments.

    Each round is T1 exchanges with many clients and one with the anchors. After every round the bank holds the
    grouped estimates, so that its report has K models.
    """

    settings: TwoPhaseSettings
    state: DescentState

    def check(self, num_models: int) -> None:
        """Raise ValueError if there are fewer anchors than models."""
        anchors = self.settings.anchors
        if self.settings.moment_rounds and anchors != "auto" and anchors < num_models:
            raise ValueError(
                f"{anchors} anchors cannot be grouped into k={num_models} models; raise strategy.anchors"
            )

    def eligible(self, online: Sequence[Client], k: int) -> list[Client]:
        """Return the clients that can be anchors; raise FederationError where they are too few for K models."""
        least = max(self.settings.min_anchor_examples, FEWEST_EXAMPLES)
        eligible = [client for client in online if client.num_examples >= least]
        needed = k if self.settings.anchors == "auto" else self.settings.anchors
        if len(eligible) < needed:
            raise FederationError(
                f"{len(eligible)} of {len(online)} clients have the {least} examples that an anchor needs, but "
                f"{needed} anchors are wanted (k={k}); lower strategy.min_anchor_examples or strategy.anchors, or "
                "bring more clients"
            )
        return eligible

    def step(self, r: Round) -> Plan[Update]:
        """Find the subspaces, and plan the exchange in which the anchors take their step."""
        online = r.online
        if not self.state.anchors:
            self._choose_anchors(r, online)
        # An anchor that came back has another node id than when it was drawn.
        here = {client.key: client for client in online}
        moving = [
            row for row, a in enumerate(self.state.anchors) if a.key in here and a.key not in self.state.stopped
        ]
        movers = [here[self.state.anchors[row].key] for row in moving]
        layout = r.models.layout
        # Without an anchor nobody's moments are asked for, and no fresh client is used up.
        clients = self._draw_clients(r, online) if movers else []
        taking_part = {client.key: client for client in (*clients, *movers)}
        r.participants = [client for _, client in sorted(taking_part.items())]

        def read(_: str, content: RecordDict) -> messages.AnchorUpdate:
            return codec.read(messages.AnchorUpdate, content, layout=layout, model=0)

        if not movers:
            return Plan([], read)
        bases = self._bases(r, clients, self.state.estimates[moving])
        settings = {
            kinds.PAIRING: self.settings.pairing,
            kinds.STEP_ALPHA: self.settings.alpha,
            kinds.STEP_BETA: self.settings.beta,
            kinds.STOP_BELOW: float(self.settings.stop_below),
        }
        requests = [
            r.request_custom(
                messages.MOMENT_DESCENT,
                anchor,
                ArrayRecord(layout.arrays(self.state.estimates[row])),
                settings,
                {kinds.BASES: ArrayRecord({kinds.BASIS: Array(basis.astype(np.float32))})},
            )
            for anchor, row, basis in zip(movers, moving, bases, strict=True)
        ]
        return Plan(requests, read)

    def _bases(self, r: Round, clients: Sequence[Client], estimates: FloatArray) -> FloatArray:
        """Return each anchor's basis (A, R, k), k being the number of models (or R, where that is less).

        The clients have at least two examples each; `estimates` (A, R) are the anchors' own.
        """
        records = self._estimate_records(r, clients, estimates)
        rank = min(r.models.count, estimates.shape[1])
        find = self._direct if self.settings.subspace == "direct" else self._iterate
        with r.meter.part("subspace"):
            return find(r, records, (*estimates.shape, rank), clients)

    def _iterate(
        self,
        r: Round,
        records: Mapping[str, ArrayRecord],
        size: tuple[int, int, int],
        clients: Sequence[Client],
    ) -> FloatArray:
        """Alg. 3 for all anchors at once: T1 exchanges a round, not T1 for each anchor."""
        bases = random_bases(*size, r.random(Purpose.SUBSPACE))
        for step in range(self.settings.inner_steps):
            transposed = step % 2 == 0
            sent = ArrayRecord({kinds.BASES: Array(bases.astype(np.float32))})
            config = {kinds.PAIRING: self.settings.pairing, kinds.TRANSPOSED: int(transposed)}
            requests = [
                r.request_custom(
                    messages.SUBSPACE,
                    client,
                    None,
                    config,
                    {kinds.ESTIMATES: records[client.key], kinds.BASES: sent},
                    category="query",
                )
                for client in clients
            ]
            replies = r.ask(
                requests, lambda _, content: codec.read(messages.Term, content, A=size[0], R=size[1], k=size[2])
            )
            unit = longest_columns(bases)
            sizes = [term_size(term.terms, unit) for _, term in replies.ok]
            replies = self._without_outliers(r, replies, sizes)
            r.require(replies, "term of the moments")
            weights = self._weights([term.num_examples for _, term in replies.ok])
            mean = weighted_mean((term.terms for _, term in replies.ok), weights)
            bases = mean if transposed else orthonormal_columns(mean)
        return bases

    def _direct(
        self,
        r: Round,
        records: Mapping[str, ArrayRecord],
        size: tuple[int, int, int],
        clients: Sequence[Client],
    ) -> FloatArray:
        all_pairs = self.settings.pairing == "all"
        # A client's matrix has as many rows as it said it has examples, whatever it claims now.
        rows = {client.key: client.num_examples if all_pairs else 1 for client in clients}
        kind: type[messages.LocalFactors | messages.TwoSidedFactors] = (
            messages.LocalFactors if all_pairs and self.settings.noise == 0 else messages.TwoSidedFactors
        )
        config = {kinds.PAIRING: self.settings.pairing}
        requests = [
            r.request_custom(
                messages.MOMENTS, client, None, config, {kinds.ESTIMATES: records[client.key]}, category="query"
            )
            for client in clients
        ]

        def read(key: str, content: RecordDict) -> messages.LocalFactors | messages.TwoSidedFactors:
            return codec.read(kind, content, A=size[0], p=rows[key], R=size[1])

        replies = r.ask(requests, read)
        sizes = [factors_size(local.left, local.right, all_pairs) for _, local in replies.ok]
        replies = self._without_outliers(r, replies, sizes)
        r.require(replies, "set of moments")
        weights = self._weights([local.num_examples for _, local in replies.ok])
        rng = r.random(Purpose.SUBSPACE)
        return leading_bases([local for _, local in replies.ok], weights, size[2], all_pairs, rng)

    def _without_outliers(self, r: Round, replies: Replies[T], sizes: list[float]) -> Replies[T]:
        """Return the replies without those whose moments no benign data give: one would turn all the subspaces."""
        mask = self.state.scale.judge(np.array(sizes))
        keys = {key for (key, _), is_outlier in zip(replies.ok, mask, strict=True) if is_outlier}
        return r.reject(replies, keys, "rejected as an outlier: its moments are far larger than the others'")

    def _weights(self, examples: list[int]) -> FloatArray:
        """Return the clients' weights: with one pair each, all count alike (Phase 1's Y); else n_i (Alg. 3)."""
        return np.ones(len(examples)) if self.settings.pairing == "single" else np.array(examples, dtype=np.float64)

    def _estimate_records(self, r: Round, clients: Sequence[Client], estimates: FloatArray) -> dict[str, ArrayRecord]:
        """Return the estimates that each client is sent; one shared record without noise."""
        if self.settings.noise == 0:
            return dict.fromkeys(
                [client.key for client in clients],
                ArrayRecord({kinds.LEFT: Array(estimates.astype(np.float32))}),
            )
        records = {}
        for client in clients:
            rng = generator(r.seed, r.server_round, Purpose.ANCHOR_NOISE, client.number)
            sides = estimates + self.settings.noise * rng.standard_normal((2, *estimates.shape))
            records[client.key] = ArrayRecord(
                {
                    name: Array(side.astype(np.float32))
                    for name, side in zip((kinds.LEFT, kinds.RIGHT), sides, strict=True)
                }
            )
        return records

    def end(self, num_models: int) -> bool:
        """End phase 1 early, with the current estimates; return whether enough anchors have replied."""
        self.state.ended = len(self.state.residuals) >= num_models
        return self.state.ended

    def details(self) -> dict[str, Detail]:
        """Return the numbers of anchors and of true clusters among them (where known), and the largest residual."""
        details: dict[str, Detail] = {"anchors": len(self.state.anchors), "anchors_stopped": len(self.state.stopped)}
        clusters = {anchor.cluster for anchor in self.state.anchors}
        if None not in clusters:
            details["anchor_clusters"] = len(clusters)
        if self.state.residuals:
            details["largest_residual"] = max(self.state.residuals.values())
        return details

    def _choose_anchors(self, r: Round, online: Sequence[Client]) -> None:
        """Draw the anchors once. A draw that misses a cluster is reported and kept: drawing again would use truth."""
        settings, k = self.settings, r.models.count
        eligible = self.eligible(online, k)
        wanted = num_anchors(k) if settings.anchors == "auto" else settings.anchors
        rng = r.random(Purpose.ANCHORS)
        drawn = rng.choice(len(eligible), size=min(wanted, len(eligible)), replace=False)
        self.state.anchors = [eligible[index] for index in sorted(drawn)]
        self.state.estimates = np.repeat(r.models.bank[:1], len(self.state.anchors), axis=0)
        self.state.groups = np.zeros(len(self.state.anchors), dtype=np.int64)
        truth, found = {client.cluster for client in online}, {anchor.cluster for anchor in self.state.anchors}
        if None not in truth and len(found) < min(k, len(truth)):
            log.warning(
                "the %d anchors drawn come from %d of %d true clusters: no anchor can find the models of the others; "
                "raise strategy.anchors, or take another seed",
                len(self.state.anchors),
                len(found),
                len(truth),
            )

    def _draw_clients(self, r: Round, online: Sequence[Client]) -> list[Client]:
        anchors = {anchor.key for anchor in self.state.anchors}
        barred = anchors | self.state.used if self.settings.fresh else set()
        clients = [c for c in online if c.num_examples >= FEWEST_EXAMPLES and c.key not in barred]
        wanted = self.settings.subspace_clients
        if not clients:
            reason = f"no client has the {FEWEST_EXAMPLES} examples that a pair takes; bring clients with more"
            if self.settings.fresh:
                reason = (
                    "no client is left that is neither an anchor nor already asked; lower strategy.subspace_clients "
                    "or strategy.moment_rounds, or use strategy.fresh=false"
                )
            raise FederationError(f"round {r.server_round}: {reason}")
        if wanted == "all":
            return clients
        if wanted > len(clients):
            log.warning(
                "round %d: %d clients can be asked for their moments, not subspace_clients=%d",
                r.server_round,
                len(clients),
                wanted,
            )
        rng = r.random(Purpose.SUBSPACE_CLIENTS)
        drawn = rng.choice(len(clients), size=min(wanted, len(clients)), replace=False)
        chosen = [clients[index] for index in sorted(drawn)]
        if self.settings.fresh:
            self.state.used |= {client.key for client in chosen}
        return chosen

    def grouped(self, r: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Take over the anchors' steps and return the grouped estimates; an anchor that was lost stays in place."""
        rows = {anchor.key: row for row, anchor in enumerate(self.state.anchors)}
        for key, update in updates:
            assert isinstance(update, messages.AnchorUpdate)  # what `plan` has read
            self.state.estimates[rows[key]] = update.vector
            self.state.residuals[key] = update.residual
            if update.residual <= self.settings.stop_below:
                self.state.stopped.add(key)
        self.state.groups = self._group(r)
        return centres(self.state.estimates, self.state.groups, r.models.bank)

    def _group(self, r: Round) -> IntArray:
        """Group the anchors that were heard; the others' estimates are still the common start, and no cluster's."""
        k = r.models.count
        heard = np.array([anchor.key in self.state.residuals for anchor in self.state.anchors])
        if heard.sum() < k:
            log.warning(
                "round %d: %d of %d anchors have replied so far, fewer than k=%d: the others are grouped with them, "
                "where they started",
                r.server_round,
                heard.sum(),
                len(heard),
                k,
            )
            heard[:] = True
        groups = np.full(len(heard), -1, dtype=np.int64)
        groups[heard] = self._group_estimates(r, self.state.estimates[heard])
        return groups

    def _group_estimates(self, r: Round, estimates: FloatArray) -> IntArray:
        k = r.models.count
        if self.settings.grouping == "exactly_k" or self.settings.delta is None:
            return group_exactly(estimates, k)
        groups = group_within(estimates, self.settings.delta / 2)
        count = int(groups.max()) + 1
        last = r.server_round == self.settings.moment_rounds or self.state.done
        if last and count != k:
            log.warning(
                "phase 1 ends with %d groups of anchors nearer than delta/2=%g, not k=%d: %s",
                count,
                self.settings.delta / 2,
                k,
                "the smallest are left out" if count > k else "the other models stay as they were",
            )
        return largest_groups(groups, k)
