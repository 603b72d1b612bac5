"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord

from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.exchange import log
from florets.strategies.base.federation import RoundFailed
from florets.strategies.base.models import Models
from florets.strategies.base.report import FIRST_PHASE, Detail, Forecast
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.two_phase.cost_estimate import forecast
from florets.strategies.two_phase.descent_settings import DescentSettings
from florets.strategies.two_phase.moment_descent import MomentDescent
from florets.strategies.two_phase.refine import Refinement


class TwoPhase(ClusteredStrategy):
    """Coarse models from a few clients with more data, then clustering and averaging by all.

    Phase 1 is rounds 1 to T (`DescentSettings.rounds`) and starts from model 0 of the initial arrays; the K models
    after each of its rounds are the centres of the grouped anchors. Phase 2 is the `num_rounds` rounds after it, and
    also those of phase 1 that are left when all anchors have stopped. The participation rate is phase 2's.

    No anchor is replaced, but no run waits for one for ever. Where none of those that still move is online, each try
    of the round waits up to `start_timeout` for one. And where too few of them take their step in the round's last
    try, phase 1 ends, if at least K anchors were heard so far; that round leaves models and assignment as they are.

    Parameters
    ----------
    descent, refinement
        Settings of the two phases.
    common
        Parameters of `ClusteredStrategy`, without `averaging` and `shared_layers`; K is the number of models in the
        initial arrays.

    Raises
    ------
    ValueError
        By `check`, if there are to be fewer anchors than models.

    Source: Su, Xu, Yang 2024, "Global Convergence of Federated Learning for Mixed Regression", Phase 1 and Phase 2.
    Deviation: the paper runs all T rounds of phase 1. Once no anchor moves they would repeat the same models, so the
    clients refine instead.
    """

    def __init__(
        self, *, descent: DescentSettings | None = None, refinement: Refinement | None = None, **common: Any
    ) -> None:
        self.refinement = refinement or Refinement()
        super().__init__(averaging=ModelAveraging(self.refinement.normaliser), **common)
        if self.shared_layers:
            raise ValueError(
                f"shared_layers={list(self.shared_layers)}: two_phase moves each anchor's whole model; leave it out"
            )
        self.descent = MomentDescent(descent or DescentSettings())
        self._phase = FIRST_PHASE

    @property
    def phase(self) -> str:
        """Return "moment_descent" or "refine"."""
        return self._phase

    @property
    def first_rounds(self) -> int:
        """Rounds of phase 1."""
        return self.descent.settings.rounds

    def check(self, models: Models) -> None:
        """Refuse fewer anchors than models."""
        self.descent.check(models.count)

    def forecast(self, models: Models) -> Forecast:
        """Return what a round of phase 1 will cost, if every anchor still moves.

        Raises
        ------
        FederationError
            If they are too few for the anchors that are still to be chosen.
        """
        if not self.descent.anchors:
            self.descent.eligible(self.federation.online(), models.count)
        return forecast(self.descent.settings, self.federation.online(), models.count, models.bank.shape[1])

    def plan(self, context: RoundContext) -> Plan:
        """Take the step of the phase that this round belongs to."""
        if context.server_round <= self.first_rounds and not self.descent.done:
            self._wait_for_anchors(context)
            return self.descent.plan(context, self.federation.online())
        self._phase = "refine"
        return self.refinement.plan(context)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average, as every strategy does; in phase 1 the groups of all anchors are the assignment."""
        try:
            result = super().aggregate_train(server_round, replies)
        except RoundFailed as failure:
            last_try = self.context.meter.tries >= self.round_tries
            if self._phase != FIRST_PHASE or not last_try or not self.descent.end(self.context.models.count):
                raise
            log.warning(
                "%s. Phase 1 ends here, with the estimates of the %d of %d anchors that were heard so far; raise "
                "round_tries or start_timeout to wait longer for the others",
                failure,
                len(self.descent.residuals),
                len(self.descent.anchors),
            )
            self.train_loss = None
            return None, None
        if self._phase == FIRST_PHASE:
            self.assignment = self.descent.assignment
        return result

    def details(self) -> dict[str, Detail]:
        """Return what phase 1 tells of its anchors; nothing in phase 2."""
        return self.descent.details() if self._phase == FIRST_PHASE else {}

    def _wait_for_anchors(self, context: RoundContext) -> None:
        """Where other clients alone are online, give an anchor that moves time to come back."""
        moving, federation = self.descent.moving, self.federation
        if not moving or any(client.key in moving for client in federation.online()):
            return
        log.warning(
            "round %d: of the anchors none that still moves (%s) is online: waiting up to start_timeout=%g s for one",
            context.server_round,
            ", ".join(sorted(moving)),
            federation.start_timeout,
        )
        federation.wait_for(context.grid, context.config, moving)
