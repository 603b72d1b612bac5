"""Phase 1 of mixed regression: a few anchors find coarse models, helped by everybody's moments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import log
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Client, Detail
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut
from florets.strategies.two_phase.messages import MOMENT_DESCENT, AnchorUpdate
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings
from florets.strategies.two_phase.subspace import MomentScale, find_bases
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds
from florets.task.wire.replies import Update


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
    """Return the models (K, R): the mean of each group's estimates; a model without a group is that of `bank`.

    Parameters
    ----------
    estimates : (A, R) float64
    groups : (A,) int64
        Model of each anchor, -1 for none.
    bank : (K, R) float64
        Not modified.
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
        Phase 1 was ended before its time.
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
        """Whether phase 1 is over: every anchor has stopped, so that it would change nothing, or it was ended."""
        return self.ended or (bool(self.anchors) and not self.moving)

    @property
    def assignment(self) -> dict[str, int]:
        """Model of each anchor that is in a group."""
        pairs = zip(self.anchors, self.groups.tolist(), strict=True)
        return {anchor.key: group for anchor, group in pairs if group >= 0}


@dataclass(frozen=True)
class MomentDescent:
    """Phase 1: the anchors' descent along gradients within the subspaces of all clients' moments.

    Each round is T1 exchanges with many clients (see `two_phase.subspace`) and one with the anchors. The bank is the
    grouped estimates after every round, so that a round's report has K models.
    """

    settings: TwoPhaseSettings
    state: DescentState

    def check(self, num_models: int) -> None:
        """Raise ValueError where there are to be fewer anchors than models."""
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

    def plan(self, context: Round) -> Plan[Update]:
        """Find the subspaces, and plan the exchange in which the anchors take their step.

        Raises
        ------
        FederationError
            If there are too few clients for anchors, or nobody is left whose moments could be asked for.
        """
        online = context.online
        if not self.state.anchors:
            self._choose_anchors(context, online)
        # An anchor that came back has another node id than when it was drawn.
        here = {client.key: client for client in online}
        moving = [
            row for row, a in enumerate(self.state.anchors) if a.key in here and a.key not in self.state.stopped
        ]
        movers = [here[self.state.anchors[row].key] for row in moving]
        layout = context.models.layout
        # Without an anchor nobody's moments are asked for, and no fresh client is used up.
        clients = self._draw_clients(context, online) if movers else []
        taking_part = {client.key: client for client in (*clients, *movers)}
        participants = [client for _, client in sorted(taking_part.items())]
        if not movers:
            return Plan(
                [],
                lambda _, content: codec.read(AnchorUpdate, content, layout=layout, model=0),
                participants=participants,
            )
        bases = find_bases(context, clients, self.state.estimates[moving], self.settings, self.state.scale)
        settings = {
            kinds.PAIRING: self.settings.pairing,
            kinds.STEP_ALPHA: self.settings.alpha,
            kinds.STEP_BETA: self.settings.beta,
            kinds.STOP_BELOW: float(self.settings.stop_below),
        }
        requests = [
            context.request_custom(
                MOMENT_DESCENT,
                anchor,
                ArrayRecord(layout.arrays(self.state.estimates[row])),
                settings,
                {kinds.BASES: ArrayRecord({kinds.BASIS: Array(basis.astype(np.float32))})},
            )
            for anchor, row, basis in zip(movers, moving, bases, strict=True)
        ]
        return Plan(
            requests,
            lambda _, content: codec.read(AnchorUpdate, content, layout=layout, model=0),
            lambda updates: self._combine(context, updates),
            participants=participants,
        )

    def end(self, num_models: int) -> bool:
        """End phase 1 before its time, with the estimates that there are; say whether the anchors heard suffice."""
        self.state.ended = len(self.state.residuals) >= num_models
        return self.state.ended

    def details(self) -> dict[str, Detail]:
        """Return the numbers of anchors and of true clusters among them (where known), and the largest residual."""
        told: dict[str, Detail] = {"anchors": len(self.state.anchors), "anchors_stopped": len(self.state.stopped)}
        clusters = {anchor.cluster for anchor in self.state.anchors}
        if None not in clusters:
            told["anchor_clusters"] = len(clusters)
        if self.state.residuals:
            told["largest_residual"] = max(self.state.residuals.values())
        return told

    def _choose_anchors(self, context: Round, online: Sequence[Client]) -> None:
        """Draw the anchors once. A draw that misses a cluster is reported and kept: drawing again would use truth."""
        settings, k = self.settings, context.models.count
        eligible = self.eligible(online, k)
        wanted = num_anchors(k) if settings.anchors == "auto" else settings.anchors
        rng = context.random(Purpose.ANCHORS)
        drawn = rng.choice(len(eligible), size=min(wanted, len(eligible)), replace=False)
        self.state.anchors = [eligible[index] for index in sorted(drawn)]
        self.state.estimates = np.repeat(context.models.bank[:1], len(self.state.anchors), axis=0)
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

    def _draw_clients(self, context: Round, online: Sequence[Client]) -> list[Client]:
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
            raise FederationError(f"round {context.server_round}: {reason}")
        if wanted == "all":
            return clients
        if wanted > len(clients):
            log.warning(
                "round %d: %d clients can be asked for their moments, not subspace_clients=%d",
                context.server_round,
                len(clients),
                wanted,
            )
        rng = context.random(Purpose.SUBSPACE_CLIENTS)
        drawn = rng.choice(len(clients), size=min(wanted, len(clients)), replace=False)
        chosen = [clients[index] for index in sorted(drawn)]
        if self.settings.fresh:
            self.state.used |= {client.key for client in chosen}
        return chosen

    def _combine(self, context: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Take over the anchors' steps and return the grouped estimates; an anchor that was lost stays in place."""
        rows = {anchor.key: row for row, anchor in enumerate(self.state.anchors)}
        for key, update in updates:
            assert isinstance(update, AnchorUpdate)  # what `plan` has read
            self.state.estimates[rows[key]] = update.vector
            self.state.residuals[key] = update.residual
            if update.residual <= self.settings.stop_below:
                self.state.stopped.add(key)
        self.state.groups = self._group(context)
        return centres(self.state.estimates, self.state.groups, context.models.bank)

    def _group(self, context: Round) -> IntArray:
        """Group the anchors that were heard; the others' estimates are still the common start, and no cluster's."""
        k = context.models.count
        heard = np.array([anchor.key in self.state.residuals for anchor in self.state.anchors])
        if heard.sum() < k:
            log.warning(
                "round %d: %d of %d anchors have replied so far, fewer than k=%d: the others are grouped with them, "
                "where they started",
                context.server_round,
                heard.sum(),
                len(heard),
                k,
            )
            heard[:] = True
        groups = np.full(len(heard), -1, dtype=np.int64)
        groups[heard] = self._group_estimates(context, self.state.estimates[heard])
        return groups

    def _group_estimates(self, context: Round, estimates: FloatArray) -> IntArray:
        k = context.models.count
        if self.settings.grouping == "exactly_k" or self.settings.delta is None:
            return group_exactly(estimates, k)
        groups = group_within(estimates, self.settings.delta / 2)
        count = int(groups.max()) + 1
        last = context.server_round == self.settings.moment_rounds or self.state.done
        if last and count != k:
            log.warning(
                "phase 1 ends with %d groups of anchors nearer than delta/2=%g, not k=%d: %s",
                count,
                self.settings.delta / 2,
                k,
                "the smallest are left out" if count > k else "the other models stay as they were",
            )
        return largest_groups(groups, k)
