"""Phase 2 of mixed regression: clients say which model fits them, train it, and the server averages."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.core import FloatArray
from florets.strategies.two_phase.messages import TRAIN_SOFT
from florets.strategies.two_phase.settings import TwoPhaseSettings
from florets.strategies.two_phase.soft_average import average_soft
from florets.task.wire import kinds
from florets.task.wire.replies import Update
from florets.task.wire.soft import SoftUpdate, read_soft_update


def plan_refinement(settings: TwoPhaseSettings, context: Round) -> Plan[Update]:
    """Send all K models to each participant (l. 5 to 8).

    With hard labels a client trains its lowest-loss model. With soft labels it trains all K, each on its loss times a
    weight that is proportional to exp(-n L / temperature), and sends all K back. With weighting "all_participants"
    model l becomes sum_i n_i / N theta_il over this round's participants, N their examples; those that did not train
    it count as having returned it unchanged. FedProx with mu = 1 / eta is solved exactly where the model is linear
    under a squared loss, else by the train settings' steps on the proximal loss.

    Source: mixed regression, Phase 2 (FedX+clustering), l. 5 to 9.
    """
    message: dict[str, float] = {}
    if settings.local_solver == "fedprox":
        learning_rate = float(str(context.config[kinds.LEARNING_RATE]))
        message = {kinds.PROXIMAL_MU: 1 / learning_rate, kinds.EXACT_PROXIMAL: 1}
    if settings.labels == "hard":
        return context.train_selected(message)
    message[kinds.TEMPERATURE] = settings.temperature
    layout, sent = context.models.layout, context.models.bank
    requests = [
        context.request_custom(TRAIN_SOFT, client, context.models.record, message) for client in context.participants
    ]

    def average(updates: Sequence[tuple[str, Update]]) -> FloatArray:
        soft = [update for _, update in updates if isinstance(update, SoftUpdate)]
        return average_soft(
            sent,
            np.stack([update.vectors for update in soft]),
            np.stack([update.memberships for update in soft]),
            np.array([update.num_examples for update in soft], dtype=np.float64),
            settings.weighting,
            layout.integers,
        )

    return Plan(requests, lambda _, content: read_soft_update(content, layout, sent), average)
