"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.exchange import Replies, T
from florets.strategies.base.federation import FederationError
from florets.strategies.base.models import Models
from florets.strategies.base.report import FIRST_PHASE, Client, State
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import MODELS_OF_GROUPS, Experiment, Settings
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
    term_size,
)
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.training.settings import Training
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import CHOICES, MODELS, MOMENTS
from florets.task.wire.replies import read_update

FEWEST_EXAMPLES = 2
"""A pair: the least that a moment matrix is made of."""
INNER_STEPS = 4
"""T1, exchanges of an orthogonal iteration, an even number."""


@dataclass(frozen=True)
class TwoPhaseSettings(Settings):
    """Mixed regression: a few anchors estimate coarse models by moment descent, then all clients refine them."""

    moment_rounds: int = setting(5, "rounds of phase 1, before those of num_rounds; 0: phase 2 alone", least=0)
    anchors: int | Literal["auto"] = setting("auto", "number of anchors; auto: ceil(3 k ln k), at least k")
    min_anchor_examples: int = setting(
        FEWEST_EXAMPLES, "clients with fewer training samples cannot be anchors", least=FEWEST_EXAMPLES
    )
    subspace: Literal["iteration", "direct"] = setting(
        "iteration",
        "how subspaces are computed; direct: one exchange, but clients send gradients of single samples (privacy!)",
    )
    subspace_clients: int | Literal["all"] = setting("all", "clients asked for their moments in a round of phase 1")
    fresh: bool = setting(False, "never ask an anchor for its moments, nor a client twice")
    local_solver: Literal["fedavg", "fedprox"] = setting(
        "fedavg", "phase 2: local steps, or the proximal problem with eta=train.learning_rate"
    )
    weighting: Literal["all_participants", "examples"] = setting(
        "all_participants", "phase 2: average relative to all participants' samples, or the model's own clients'"
    )

    follows = MODELS_OF_GROUPS

    @property
    def rounds_before(self) -> int:
        """Rounds of phase 1."""
        return self.moment_rounds

    @property
    def asks(self) -> frozenset[str]:  # type: ignore[override]  # it depends on a key
        """Moments in phase 1, choices in phase 2."""
        return frozenset({"moments", "choices"} if self.moment_rounds else {"choices"})

    def problems(self, run: Experiment) -> list[str]:
        """Refuse fewer anchors than models, fresh clients among all, and proximal problems without plain steps."""
        problems, train = [], run.train
        if self.fresh and self.subspace_clients == "all":
            problems.append(
                "strategy.fresh=true: needs a number as strategy.subspace_clients, not all clients at once."
            )
        if isinstance(run.k, int) and self.anchors != "auto" and self.anchors < run.k:
            problems.append(
                f"strategy.anchors={self.anchors}: must be at least k={run.k}, to find a group for each model."
            )
        plain = train.optimizer == "sgd" and not train.momentum and train.schedule == "constant"
        if self.local_solver == "fedprox" and not plain:
            problems.append(
                "strategy.local_solver=fedprox: is defined by plain gradient steps, with mu = 1/train.learning_rate "
                "in all rounds; use train.optimizer=sgd train.momentum=0 train.schedule=constant."
            )
        return problems


@dataclass
class TwoPhaseState(State):
    """What both phases remember: the assignment, and the anchors of the first."""

    phase: str = FIRST_PHASE
    # The A clients that descend, in the order of their keys; their current estimates (A, R), and their groups (A,),
    # -1 where an anchor was never heard.
    anchors: list[Client] = field(default_factory=list)
    estimates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    groups: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Anchors that took a step.
    heard: set[str] = field(default_factory=set)
    # Clients that were asked for their moments, where they are asked once only.
    used: set[str] = field(default_factory=set)
    # The largest median size of moments so far, to tell outliers.
    scale: float = 0.0


class TwoPhase(Strategy[TwoPhaseSettings, TwoPhaseState]):
    """Coarse models from a few clients with more data, then clustering and averaging by all.

    Phase 1 is rounds 1 to T (`moment_rounds`) and starts from model 0 of the initial arrays; the K models after each
    of its rounds are the centres of the grouped anchors. A round is T1 exchanges with many clients and one with the
    anchors, of whom none is replaced. Phase 2 is the `num_rounds` rounds after it. The participation rate is phase
    2's.

    Source: Su, Xu, Yang 2024, "Global Convergence of Federated Learning for Mixed Regression", Phase 1 and Phase 2.
    Deviation: no anchor stops before phase 1 ends. The paper's rule, sigma <= epsilon alpha Delta / sqrt(2), needs
    the least distance Delta of the true models; with it the loss on mixed_regression/a is the same (0.0200, 3 seeds).
    """

    leaving = (MODELS, MOMENTS, CHOICES)
    Settings = TwoPhaseSettings
    State = TwoPhaseState

    def check(self, models: Models) -> None:
        """Refuse fewer anchors than models."""
        super().check(models)
        anchors = self.settings.anchors
        if self.settings.moment_rounds and anchors != "auto" and anchors < models.count:
            raise ValueError(
                f"{anchors} anchors cannot be grouped into k={models.count} models; raise strategy.anchors"
            )

    def round(self, r: Round) -> Steps:
        """Take the step of the phase that this round belongs to."""
        if r.server_round > self.rounds_before:
            self.state.phase = "refine"
            return (yield from self._refine(r))
        return (yield from self._descend(r))

    def _descend(self, r: Round) -> Steps:
        """Let the anchors take their step within the subspaces found, and group their estimates (phase 1)."""
        state, layout = self.state, r.models.layout
        if not state.anchors:
            self._choose_anchors(r)
        # An anchor that came back has another node id than when it was drawn.
        here = {client.key: client for client in r.online}
        rows = [row for row, anchor in enumerate(state.anchors) if anchor.key in here]
        anchors = [here[state.anchors[row].key] for row in rows]
        # Without an anchor nobody's moments are asked for, and no fresh client is used up.
        clients = self._draw_clients(r) if anchors else []
        taking_part = {client.key: client for client in (*clients, *anchors)}
        r.participants = [client for _, client in sorted(taking_part.items())]
        bases = self._bases(r, clients, state.estimates[rows]) if anchors else ()
        requests = [
            r.request_custom(
                messages.MOMENT_DESCENT,
                anchor,
                ArrayRecord(layout.arrays(state.estimates[row])),
                {},
                {kinds.BASES: ArrayRecord({kinds.BASIS: Array(basis.astype(np.float32))})},
            )
            for anchor, row, basis in zip(anchors, rows, bases, strict=True)
        ]
        updates = yield Plan(requests, lambda _, content: read_update(content, layout, 0))
        places = {anchor.key: row for row, anchor in enumerate(state.anchors)}
        for key, update in updates:
            state.estimates[places[key]] = update.vector
            state.heard.add(key)
        state.groups = self._group(r.models.count)
        # The groups of all anchors, not only of those that answered.
        pairs = zip(state.anchors, state.groups.tolist(), strict=True)
        state.assignment = {anchor.key: group for anchor, group in pairs if group >= 0}
        return centres(state.estimates, state.groups, r.models.bank)

    def _refine(self, r: Round) -> Steps:
        """Send all K models to each participant, which trains the one with its lowest loss; average (phase 2).

        FedProx with mu = 1 / eta is solved exactly where the model is linear under a squared loss.

        Source: mixed regression, Phase 2 (FedX+clustering), l. 5 to 9.
        """
        message: dict[str, float] = {}
        if self.settings.local_solver == "fedprox":
            message = {kinds.PROXIMAL_MU: 1 / Training.received(r.config).learning_rate, kinds.EXACT_PROXIMAL: 1}
        updates = yield r.train_selected(message)
        return r.average(updates)

    def _choose_anchors(self, r: Round) -> None:
        """Draw the anchors once. A draw that misses a cluster is kept: drawing again would use truth."""
        state, own, k = self.state, self.settings, r.models.count
        eligible = [client for client in r.online if client.num_examples >= own.min_anchor_examples]
        if len(eligible) < (needed := k if own.anchors == "auto" else own.anchors):
            raise FederationError(
                f"{len(eligible)} of {len(r.online)} clients have the {own.min_anchor_examples} examples that an "
                f"anchor needs, but {needed} anchors are wanted (k={k}); lower strategy.min_anchor_examples or "
                "strategy.anchors, or bring more clients"
            )
        wanted = num_anchors(k) if own.anchors == "auto" else own.anchors
        state.anchors = _drawn(eligible, wanted, r.random(Purpose.ANCHORS))
        state.estimates = np.repeat(r.models.bank[:1], len(state.anchors), axis=0)
        state.groups = np.zeros(len(state.anchors), dtype=np.int64)

    def _draw_clients(self, r: Round) -> list[Client]:
        """Return the clients that are asked for their moments."""
        state, own = self.state, self.settings
        barred = {anchor.key for anchor in state.anchors} | state.used if own.fresh else set()
        clients = [c for c in r.online if c.num_examples >= FEWEST_EXAMPLES and c.key not in barred]
        if not clients:
            reason = f"no client has the {FEWEST_EXAMPLES} examples that a pair takes; bring clients with more"
            if own.fresh:
                reason = (
                    "no client is left that is neither an anchor nor already asked; lower strategy.subspace_clients "
                    "or strategy.moment_rounds, or use strategy.fresh=false"
                )
            raise FederationError(f"round {r.server_round}: {reason}")
        if own.subspace_clients == "all":
            return clients
        chosen = _drawn(clients, own.subspace_clients, r.random(Purpose.SUBSPACE_CLIENTS))
        if own.fresh:
            state.used |= {client.key for client in chosen}
        return chosen

    def _bases(self, r: Round, clients: Sequence[Client], estimates: FloatArray) -> FloatArray:
        """Return each anchor's basis (A, R, k), k being the number of models (or R, where that is less)."""
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
            replies = self._without_outliers(r, replies, [term_size(term.terms, unit) for _, term in replies.ok])
            r.require(replies, "term of the moments")
            weights = np.array([term.num_examples for _, term in replies.ok], dtype=np.float64)
            shares = zip(weights / weights.sum(), replies.ok, strict=True)
            mean = sum((share * term.terms.astype(np.float64) for share, (_, term) in shares), start=np.zeros(size))
            bases = mean if step % 2 == 0 else orthonormal_columns(mean)
        return bases

    def _direct(
        self, r: Round, estimates: ArrayRecord, size: tuple[int, int, int], clients: Sequence[Client]
    ) -> FloatArray:
        """Decompose the matrices that follow from the moments of single samples, in one exchange."""
        # A client has as many moments as it said it has examples, whatever it claims now.
        rows = {client.key: client.num_examples for client in clients}

        def read(key: str, content: RecordDict) -> messages.LocalFactors:
            return codec.read(messages.LocalFactors, content, A=size[0], p=rows[key], R=size[1])

        sent = {kinds.ESTIMATES: estimates}
        requests = [r.request_custom(messages.MOMENTS, one, None, {}, sent, category="query") for one in clients]
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

    def _group(self, k: int) -> IntArray:
        """Group the anchors that were heard, or all as long as these are fewer than K."""
        state = self.state
        heard = np.array([anchor.key in state.heard for anchor in state.anchors])
        if heard.sum() < k:
            heard[:] = True
        groups = np.full(len(heard), -1, dtype=np.int64)
        groups[heard] = group_exactly(state.estimates[heard], k)
        return groups


def _drawn(clients: Sequence[Client], wanted: int, rng: np.random.Generator) -> list[Client]:
    """Return so many clients, or all, in their order."""
    drawn = rng.choice(len(clients), size=min(wanted, len(clients)), replace=False)
    return [clients[index] for index in sorted(drawn)]
