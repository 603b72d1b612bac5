"""Phase 2 of mixed regression: clients say which model fits them, train it, and the server averages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.core import FloatArray
from florets.strategies.two_phase.soft_average import average_soft
from florets.task.wire import kinds
from florets.task.wire.replies import Update
from florets.task.wire.soft import SoftUpdate, read_soft_update


@dataclass(frozen=True)
class Refinement:
    """How clients label themselves and train, and how the server weighs them.

    Parameters
    ----------
    labels
        "hard": a client trains its lowest-loss model. "soft": it trains all K, each on its loss times a weight that
        is proportional to exp(-n L / temperature), and sends all K back.
    temperature
        Of soft labels, above 0.
    normaliser
        "all": model l becomes sum_i n_i / N theta_il over this round's participants, N their examples; those that did
        not train it count as having returned it unchanged. "group_n": the mean over those that trained it.
    proximal_mu
        1 / eta of FedProx; 0 is FedAvg. It is solved exactly where the model is linear under a squared loss, else by
        the train settings' steps on the proximal loss.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    Source: mixed regression, Phase 2 (FedX+clustering), l. 5 to 9.
    """

    labels: Literal["hard", "soft"] = "hard"
    temperature: float = 1.0
    normaliser: Literal["all", "group_n"] = "all"
    proximal_mu: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.temperature <= 0 or self.proximal_mu < 0:
            raise ValueError(
                f"temperature={self.temperature} must be above 0 and proximal_mu={self.proximal_mu} at least 0"
            )

    def plan(self, context: RoundContext) -> Plan:
        """Send all K models to each participant (l. 5 to 8)."""
        settings: dict[str, float] = {}
        if self.proximal_mu > 0:
            settings = {kinds.PROXIMAL_MU: self.proximal_mu, kinds.EXACT_PROXIMAL: 1}
        if self.labels == "hard":
            return context.train_selected(**settings)
        settings[kinds.TEMPERATURE] = self.temperature
        layout, sent = context.models.layout, context.models.bank
        requests = [
            context.request(kinds.TRAIN_SOFT, client, context.models.record, settings)
            for client in context.participants
        ]
        return Plan(
            requests,
            lambda _, content: read_soft_update(content, layout, sent),
            lambda updates: self._average(context, updates),
        )

    def _average(self, context: RoundContext, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        soft = [update for _, update in updates if isinstance(update, SoftUpdate)]
        return average_soft(
            context.models.bank,
            np.stack([update.vectors for update in soft]),
            np.stack([update.memberships for update in soft]),
            np.array([update.num_examples for update in soft], dtype=np.float64),
            self.normaliser,
            context.models.layout.integers,
        )
