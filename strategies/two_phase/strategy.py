"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from flwr.app import ArrayRecord, Message, MetricRecord

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import log
from florets.strategies.base.federation import RoundFailed
from florets.strategies.base.models import Models
from florets.strategies.base.report import FIRST_PHASE, CostEstimate, Detail
from florets.strategies.base.state import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.two_phase.cost_estimate import estimate_cost
from florets.strategies.two_phase.moment_descent import DescentState, MomentDescent
from florets.strategies.two_phase.refine import plan_refinement
from florets.strategies.two_phase.settings import TwoPhaseSettings
from florets.task.wire.replies import Update


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

    No anchor is replaced, but no run waits for one for ever. Where none of those that still move is online, each try
    of the round waits up to `start_timeout` for one. And where too few of them take their step in the round's last
    try, phase 1 ends, if at least K anchors were heard so far; that round leaves models and assignment as they are.

    Raises
    ------
    ValueError
        By `check`, if there are to be fewer anchors than models.

    Source: Su, Xu, Yang 2024, "Global Convergence of Federated Learning for Mixed Regression", Phase 1 and Phase 2.
    Deviation: the paper runs all T rounds of phase 1. Once no anchor moves they would repeat the same models, so the
    clients refine instead.
    """

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
        """Return what a round of phase 1 will cost, if every anchor still moves.

        Raises
        ------
        FederationError
            If they are too few for the anchors that are still to be chosen.
        """
        if not self.state.descent.anchors:
            self.descent.eligible(self.federation.online(), models.count)
        return estimate_cost(self.settings, self.federation.online(), models.count, models.bank.shape[1])

    def plan(self, context: Round) -> Plan[Update]:
        """Take the step of the phase that this round belongs to."""
        if context.server_round <= self.first_rounds and not self.state.descent.done:
            self._wait_for_anchors(context)
            # An anchor that came back meanwhile takes part at once, and not only in another try.
            return self.descent.plan(replace(context, online=self.federation.online()))
        self.state.phase = "refine"
        return plan_refinement(self.settings, context)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average, as every strategy does; in phase 1 the groups of all anchors are the assignment."""
        try:
            result = super().aggregate_train(server_round, replies)
        except RoundFailed as failure:
            last_try = self.context.meter.tries >= self.run.round_tries
            if self.state.phase != FIRST_PHASE or not last_try or not self.descent.end(self.context.models.count):
                raise
            log.warning(
                "%s. Phase 1 ends here, with the estimates of the %d of %d anchors that were heard so far; raise "
                "round_tries or start_timeout to wait longer for the others",
                failure,
                len(self.state.descent.residuals),
                len(self.state.descent.anchors),
            )
            self.state.train_loss = None
            return None, None
        if self.state.phase == FIRST_PHASE:
            self.state.assignment = self.state.descent.assignment
        return result

    def details(self) -> dict[str, Detail]:
        """Return what phase 1 tells of its anchors; nothing in phase 2."""
        return self.descent.details() if self.state.phase == FIRST_PHASE else {}

    def _wait_for_anchors(self, context: Round) -> None:
        """Where other clients alone are online, give an anchor that moves time to come back."""
        moving, federation = self.state.descent.moving, self.federation
        if not moving or any(client.key in moving for client in federation.online()):
            return
        log.warning(
            "round %d: of the anchors none that still moves (%s) is online: waiting up to start_timeout=%g s for one",
            context.server_round,
            ", ".join(sorted(moving)),
            federation.start_timeout,
        )
        federation.wait_for(context.grid, context.config, moving)
