"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from dataclasses import dataclass, field

from florets.strategies.base import loop
from florets.strategies.base.exchange import log
from florets.strategies.base.federation import RoundFailed
from florets.strategies.base.models import Models
from florets.strategies.base.report import FIRST_PHASE, Detail, State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.two_phase.moment_descent import DescentState, MomentDescent
from florets.strategies.two_phase.settings import TwoPhaseSettings
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.leaving import CHOICES, MODELS, MOMENTS


def refined(settings: TwoPhaseSettings, r: Round) -> Steps:
    """Send all K models to each participant, which trains the one with its lowest loss (l. 5 to 8); average (l. 9).

    With weighting "all_participants" model l becomes sum_i n_i / N theta_il over this round's participants, N their
    examples; those that did not train it count as having returned it unchanged. FedProx with mu = 1 / eta is solved
    exactly where the model is linear under a squared loss, else by the train settings' steps on the proximal loss.

    Source: mixed regression, Phase 2 (FedX+clustering), l. 5 to 9.
    """
    message: dict[str, float] = {}
    if settings.local_solver == "fedprox":
        message = {kinds.PROXIMAL_MU: 1 / Training.received(r.config).learning_rate, kinds.EXACT_PROXIMAL: 1}
    updates = yield r.train_selected(message)
    return r.average(updates)


@dataclass
class TwoPhaseState(State):
    """What both phases remember: the assignment, and the anchors of the first."""

    phase: str = FIRST_PHASE
    descent: DescentState = field(default_factory=DescentState)


class TwoPhase(Strategy[TwoPhaseSettings, TwoPhaseState]):
    """Coarse models from a few clients with more data, then clustering and averaging by all.

    Phase 1 is rounds 1 to T (`moment_rounds`) and starts from model 0 of the initial arrays; the K models
    after each of its rounds are the centres of the grouped anchors. Phase 2 is the `num_rounds` rounds after it, and
    also those of phase 1 that are left when it ends early. The participation rate is phase 2's.

    No anchor is replaced, but no run waits forever for one. Where none is online, each try of the round
    waits up to `start_timeout` for one. Where too few of them take their step in the round's last try, phase 1 ends
    if at least K anchors have replied so far; that round leaves models and assignment as they are.

    Source: Su, Xu, Yang 2024, "Global Convergence of Federated Learning for Mixed Regression", Phase 1 and Phase 2.
    Deviation: no anchor stops before phase 1 ends. The paper's rule, sigma <= epsilon alpha Delta / sqrt(2), needs
    the least distance Delta of the true models; with it the loss on mixed_regression/a is the same (0.0200, 3 seeds).
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

    def round(self, r: Round) -> Steps:
        """Take the step of the phase that this round belongs to."""
        if r.server_round > self.rounds_before or self.state.descent.ended:
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
            if r.meter.tries < loop.TRIES or not self.descent.end(r.models.count):
                raise
            log.warning(
                "%s. Phase 1 ends here, with the estimates of the %d of %d anchors that have replied so far; raise "
                "start_timeout to wait longer for the others",
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
        """Where no anchor is online, give one time to come back."""
        anchors, federation = {anchor.key for anchor in self.state.descent.anchors}, self.federation
        if not anchors or any(client.key in anchors for client in federation.online()):
            return
        log.warning(
            "round %d: none of the anchors (%s) is online: waiting up to start_timeout=%g s for one",
            r.server_round,
            ", ".join(sorted(anchors)),
            federation.start_timeout,
        )
        federation.wait_for(r.grid, r.config, anchors)
