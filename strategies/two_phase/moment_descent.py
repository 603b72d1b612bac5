"""Phase 1 of two-phase: the anchors' subspaces, and descent on their moments."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.exchange import Replies, T, log
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client, Detail
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.two_phase import messages
from florets.strategies.two_phase.moment_algebra import (
    centres,
    factors_size,
    group_exactly,
    leading_bases,
    longest_columns,
    num_anchors,
    orthonormal_columns,
    outlier_moments,
    random_bases,
    term_size,
    weighted_mean,
)
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds
from florets.task.wire.replies import Update

INNER_STEPS = 4
"""T1, exchanges of an orthogonal iteration, an even number."""


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
    used
        Clients that were asked for their moments, where they are asked once only.
    scale
        The largest median size of moments so far, to tell outliers.
    ended
        Phase 1 was ended early.
    """

    anchors: list[Client] = field(default_factory=list)
    estimates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    groups: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    residuals: dict[str, float] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    scale: float = 0.0
    ended: bool = False

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
        rows = [row for row, anchor in enumerate(self.state.anchors) if anchor.key in here]
        anchors = [here[self.state.anchors[row].key] for row in rows]
        layout = r.models.layout
        # Without an anchor nobody's moments are asked for, and no fresh client is used up.
        clients = self._draw_clients(r, online) if anchors else []
        taking_part = {client.key: client for client in (*clients, *anchors)}
        r.participants = [client for _, client in sorted(taking_part.items())]

        def read(_: str, content: RecordDict) -> messages.AnchorUpdate:
            return codec.read(messages.AnchorUpdate, content, layout=layout, model=0)

        if not anchors:
            return Plan([], read)
        bases = self._bases(r, clients, self.state.estimates[rows])
        settings = {kinds.STEP_ALPHA: self.settings.alpha, kinds.STEP_BETA: self.settings.beta}
        requests = [
            r.request_custom(
                messages.MOMENT_DESCENT,
                anchor,
                ArrayRecord(layout.arrays(self.state.estimates[row])),
                settings,
                {kinds.BASES: ArrayRecord({kinds.BASIS: Array(basis.astype(np.float32))})},
            )
            for anchor, row, basis in zip(anchors, rows, bases, strict=True)
        ]
        return Plan(requests, read)

    def _bases(self, r: Round, clients: Sequence[Client], estimates: FloatArray) -> FloatArray:
        """Return each anchor's basis (A, R, k), k being the number of models (or R, where that is less).

        The clients have at least two examples each; `estimates` (A, R) are the anchors' own.
        """
        sent = ArrayRecord({kinds.ESTIMATES: Array(estimates.astype(np.float32))})
        rank = min(r.models.count, estimates.shape[1])
        find = self._direct if self.settings.subspace == "direct" else self._iterate
        with r.meter.part("subspace"):
            return find(r, sent, (*estimates.shape, rank), clients)

    def _iterate(
        self, r: Round, estimates: ArrayRecord, size: tuple[int, int, int], clients: Sequence[Client]
    ) -> FloatArray:
        """Alg. 3 for all anchors at once: T1 exchanges a round, not T1 for each anchor.

        Moment matrices are symmetric, so that each step multiplies by Y, where the paper takes Y^T and Y in turn.
        """
        bases = random_bases(*size, r.random(Purpose.SUBSPACE))
        for step in range(INNER_STEPS):
            sent = {
                kinds.ESTIMATES: estimates,
                kinds.BASES: ArrayRecord({kinds.BASES: Array(bases.astype(np.float32))}),
            }
            requests = [
                r.request_custom(messages.SUBSPACE, client, None, {}, sent, category="query") for client in clients
            ]
            replies = r.ask(
                requests, lambda _, content: codec.read(messages.Term, content, A=size[0], R=size[1], k=size[2])
            )
            unit = longest_columns(bases)
            replies = self._without_outliers(r, replies, [term_size(term.terms, unit) for _, term in replies.ok])
            r.require(replies, "term of the moments")
            weights = np.array([term.num_examples for _, term in replies.ok], dtype=np.float64)
            mean = weighted_mean((term.terms for _, term in replies.ok), weights)
            bases = mean if step % 2 == 0 else orthonormal_columns(mean)
        return bases

    def _direct(
        self, r: Round, estimates: ArrayRecord, size: tuple[int, int, int], clients: Sequence[Client]
    ) -> FloatArray:
        # A client has as many moments as it said it has examples, whatever it claims now.
        rows = {client.key: client.num_examples for client in clients}
        sent = {kinds.ESTIMATES: estimates}
        requests = [
            r.request_custom(messages.MOMENTS, client, None, {}, sent, category="query") for client in clients
        ]

        def read(key: str, content: RecordDict) -> messages.LocalFactors:
            return codec.read(messages.LocalFactors, content, A=size[0], p=rows[key], R=size[1])

        replies = r.ask(requests, read)
        replies = self._without_outliers(r, replies, [factors_size(local.moments) for _, local in replies.ok])
        r.require(replies, "set of moments")
        weights = np.array([local.num_examples for _, local in replies.ok], dtype=np.float64)
        return leading_bases([local for _, local in replies.ok], weights, size[2], r.random(Purpose.SUBSPACE))

    def _without_outliers(self, r: Round, replies: Replies[T], sizes: list[float]) -> Replies[T]:
        """Return the replies without those whose moments no benign data give: one would turn all the subspaces."""
        mask, self.state.scale = outlier_moments(np.array(sizes), self.state.scale)
        keys = {key for (key, _), is_outlier in zip(replies.ok, mask, strict=True) if is_outlier}
        return r.reject(replies, keys, "rejected as an outlier: its moments are far larger than the others'")

    def end(self, num_models: int) -> bool:
        """End phase 1 early, with the current estimates; return whether enough anchors have replied."""
        self.state.ended = len(self.state.residuals) >= num_models
        return self.state.ended

    def details(self) -> dict[str, Detail]:
        """Return the numbers of anchors and of true clusters among them (where known), and the largest residual."""
        details: dict[str, Detail] = {"anchors": len(self.state.anchors)}
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
        groups[heard] = group_exactly(self.state.estimates[heard], k)
        return groups
