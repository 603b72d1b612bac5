"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord

from florets.strategies.base.federation import FederationError
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import IntArray
from florets.strategies.two_phase import messages
from florets.strategies.two_phase.moment_algebra import centres, group_exactly, num_anchors
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings, TwoPhaseState
from florets.strategies.two_phase.subspaces import bases
from florets.task.randomness import Purpose
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.leaving import CHOICES, MODELS, MOMENTS
from florets.task.wire.replies import read_update


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
        if r.server_round > self.settings.rounds_before:
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
        directly = self.settings.subspace == "direct"
        found = bases(r, state, clients, state.estimates[rows], directly) if anchors else ()
        requests = [
            r.request_custom(
                messages.MOMENT_DESCENT,
                anchor,
                ArrayRecord(layout.arrays(state.estimates[row])),
                {},
                {kinds.BASES: ArrayRecord({kinds.BASIS: Array(basis.astype(np.float32))})},
            )
            for anchor, row, basis in zip(anchors, rows, found, strict=True)
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
