"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.exchange import log
from florets.strategies.base.federation import RoundFailed
from florets.strategies.base.models import Models
from florets.strategies.base.report import FIRST_PHASE, Client, CostEstimate, Detail, State
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.two_phase.messages import TRAIN_SOFT, SoftUpdate, read_soft_update
from florets.strategies.two_phase.moment_algebra import num_anchors
from florets.strategies.two_phase.moment_descent import DescentState, MomentDescent
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.leaving import CHOICES, MODELS, MOMENTS


def average_soft(
    bank: FloatArray,
    updates: FloatArray,
    memberships: FloatArray,
    weights: FloatArray,
    weighting: str,
    integers: BoolArray,
) -> FloatArray:
    """Return the next models (K, R).

    Parameters
    ----------
    bank : (K, R) float64
        The models that were sent. Not modified.
    updates : (P, K, R) float64
        All models as each participant returned them: model l trained on the participant's loss times its weight of l.
    memberships : (P, K) float64
        Those weights, lambda; each row sums to 1.
    weights : (P,) float64
        Example counts n.
    weighting : str
        ``"all_participants"``: theta_l = sum_i n_i / N theta_il, N over all participants. ``"examples"``: the same
        change, divided by sum_i n_i lambda_il instead, the examples that belong to the model. With weights of
        0 and 1 both are `aggregate.average_models`.
    integers : (R,) bool
        Entries that are counters: the largest among the participants is kept.

    Source: mixed regression, Phase 2, l. 9 (``all_participants``).
    """
    result = np.array(bank, dtype=np.float64)
    shares = weights[:, np.newaxis] * (memberships if weighting == "examples" else np.ones_like(memberships))
    totals = shares.sum(axis=0)
    change = np.zeros_like(result)
    # The change carries lambda already, in the participant's own steps.
    for update, weight in zip(updates, weights, strict=True):
        change += weight * (update - bank)
    trained = totals > 0
    result[trained] += change[trained] / totals[trained, np.newaxis]
    result[:, integers] = updates[:, :, integers].max(axis=0)
    return result


def refined(settings: TwoPhaseSettings, r: Round) -> Steps:
    """Send all K models to each participant, which trains what fits its data (l. 5 to 8); average (l. 9).

    With hard labels a client trains its lowest-loss model. With soft labels it trains all K, each on its loss times a
    weight that is proportional to exp(-n L / temperature), and sends all K back. With weighting "all_participants"
    model l becomes sum_i n_i / N theta_il over this round's participants, N their examples; those that did not train
    it count as having returned it unchanged. FedProx with mu = 1 / eta is solved exactly where the model is linear
    under a squared loss, else by the train settings' steps on the proximal loss.

    Source: mixed regression, Phase 2 (FedX+clustering), l. 5 to 9.
    """
    message: dict[str, float] = {}
    if settings.local_solver == "fedprox":
        message = {kinds.PROXIMAL_MU: 1 / Training.received(r.config).learning_rate, kinds.EXACT_PROXIMAL: 1}
    if settings.labels == "hard":
        updates = yield r.train_selected(message)
        return r.average(updates)
    message[kinds.TEMPERATURE] = settings.temperature
    layout, sent = r.models.layout, r.models.bank
    requests = [r.request_custom(TRAIN_SOFT, client, r.models.record, message) for client in r.participants]
    updates = yield Plan(requests, lambda _, content: read_soft_update(content, layout, sent))
    soft = [update for _, update in updates if isinstance(update, SoftUpdate)]
    return average_soft(
        sent,
        np.stack([update.vectors for update in soft]),
        np.stack([update.shares for update in soft]),
        np.array([update.num_examples for update in soft], dtype=np.float64),
        settings.weighting,
        layout.integers,
    )


_FLOAT32 = 4
"""Bytes of a value as it is sent."""


def estimate_cost(settings: TwoPhaseSettings, clients: Sequence[Client], num_models: int, size: int) -> CostEstimate:
    """Estimate a round of phase 1 for these clients and K models of R = `size` values."""
    able = [client for client in clients if client.num_examples >= FEWEST_EXAMPLES]
    eligible = sum(client.num_examples >= settings.min_anchor_examples for client in able)
    anchors = min(num_anchors(num_models) if settings.anchors == "auto" else settings.anchors, eligible)
    asked = len(able)
    if settings.fresh:
        asked -= anchors
    if settings.subspace_clients != "all":
        asked = min(asked, settings.subspace_clients)
    rank = min(num_models, size)
    estimates, bases = anchors * size * (1 if settings.noise == 0 else 2), anchors * size * rank
    if settings.subspace == "iteration":
        exchanges, values = settings.inner_steps, asked * (estimates + 2 * bases)
    else:
        # The factors: of all pairs every example's moment at each anchor.
        examples = sum(client.num_examples for client in able) * asked // max(len(able), 1)
        rows = examples if settings.pairing == "all" else asked
        sides = 1 if settings.pairing == "all" and settings.noise == 0 else 2
        exchanges, values = 1, asked * estimates + sides * rows * anchors * size
    step = anchors * size * (rank + 2)
    return CostEstimate(settings.moment_rounds, exchanges * asked + anchors, _FLOAT32 * (exchanges * values + step))


@dataclass
class TwoPhaseState(State):
    """What both phases remember: the assignment, and the anchors of the first."""

    phase: str = FIRST_PHASE
    descent: DescentState = field(default_factory=DescentState)


class TwoPhase(Strategy[TwoPhaseSettings, TwoPhaseState]):
    """Coarse models from a few clients with more data, then clustering and averaging by all.

    Phase 1 is rounds 1 to T (`moment_rounds`) and starts from model 0 of the initial arrays; the K models
    after each of its rounds are the centres of the grouped anchors. Phase 2 is the `num_rounds` rounds after it, and
    also those of phase 1 that are left when all anchors have stopped. The participation rate is phase 2's.

    No anchor is replaced, but no run waits forever for one. Where no moving anchor is online, each try of the round
    waits up to `start_timeout` for one. Where too few of them take their step in the round's last try, phase 1 ends
    if at least K anchors have replied so far; that round leaves models and assignment as they are.

    Source: Su, Xu, Yang 2024, "Global Convergence of Federated Learning for Mixed Regression", Phase 1 and Phase 2.
    Deviation: the paper runs all T rounds of phase 1. Once no anchor moves they would repeat the same models, so the
    clients refine instead.
    """

    leaving = (MODELS, MOMENTS, CHOICES)
    Settings = TwoPhaseSettings
    State = TwoPhaseState

    @property
    def descent(self) -> MomentDescent:
        """Phase 1."""
        return MomentDescent(self.settings, self.state.descent)

    def check(self, models: Models) -> None:
        """Refuse fewer anchors than models."""
        super().check(models)
        self.descent.check(models.count)

    def estimate_cost(self, models: Models) -> CostEstimate:
        """Return what a round of phase 1 will cost, if every anchor still moves."""
        if not self.state.descent.anchors:
            self.descent.eligible(self.federation.online(), models.count)
        return estimate_cost(self.settings, self.federation.online(), models.count, models.bank.shape[1])

    def round(self, r: Round) -> Steps:
        """Take the step of the phase that this round belongs to."""
        if r.server_round > self.rounds_before or self.state.descent.done:
            self.state.phase = "refine"
            return (yield from refined(self.settings, r))
        self._wait_for_anchors(r)
        # An anchor that came back meanwhile takes part at once, and not only in another try.
        r.online = self.federation.online()
        plan = self.descent.step(r)
        try:
            updates = yield plan
        except RoundFailed as failure:
            descent = self.state.descent
            if r.meter.tries < self.run.round_tries or not self.descent.end(r.models.count):
                raise
            log.warning(
                "%s. Phase 1 ends here, with the estimates of the %d of %d anchors that have replied so far; raise "
                "round_tries or start_timeout to wait longer for the others",
                *(failure, len(descent.residuals), len(descent.anchors)),
            )
            self.state.train_loss = None
            return None
        bank = self.descent.grouped(r, updates)
        # The groups of all anchors, not only of those that answered.
        self.state.assignment = self.state.descent.assignment
        return bank

    def details(self) -> dict[str, Detail]:
        """Return what phase 1 reports about its anchors; nothing in phase 2."""
        return self.descent.details() if self.state.phase == FIRST_PHASE else {}

    def _wait_for_anchors(self, r: Round) -> None:
        """Where no moving anchor is online, give one time to come back."""
        moving, federation = self.state.descent.moving, self.federation
        if not moving or any(client.key in moving for client in federation.online()):
            return
        log.warning(
            "round %d: of the anchors none that still moves (%s) is online: waiting up to start_timeout=%g s for one",
            r.server_round,
            ", ".join(sorted(moving)),
            federation.start_timeout,
        )
        federation.wait_for(r.grid, r.config, moving)
