"""Ditto: a global model by FedAvg, and for each client a personal one that is held near it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.models import Models
from florets.strategies.base.state import State
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.core import FloatArray
from florets.strategies.ditto.settings import DittoSettings
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.wire import kinds
from florets.task.wire.bilevel import BilevelUpdate, read_bilevel_update
from florets.task.wire.replies import TestResult, Update


@dataclass
class DittoState(State):
    """The clients' models; `assignment` numbers them from 1, in the order in which the clients were first seen.

    Attributes
    ----------
    start
        The first global model, from which every personal one starts.
    """

    personal: PersonalModels = field(default_factory=PersonalModels)
    start: Models | None = None


class Ditto(ClusteredStrategy[DittoSettings, DittoState]):
    """Train a global model by FedAvg, and beside it each participant's personal model, pulled towards the global one.

    Personal is a whole model for each client, and its test is the client's result; a client that has not taken part
    yet tests the global one. Personal models are kept by the server, 4 R bytes for each client seen, so that clients
    keep nothing and an interrupted run goes on. A round therefore sends two models down and two up; where clients
    keep their own, as in the paper, it sends what FedAvg does. Local work is twice that of FedAvg. At the end model 0
    is the global one, and the others are the clients'.

    Source: Li et al. 2021 (Ditto, arXiv 2012.04221), Alg. 1; lambda 1 as in the released scripts. Deviation:
    the personal model takes as many local steps as the global one, on the same batches, by the run's optimiser; the
    global average is weighted by examples.
    """

    Settings = DittoSettings
    State = DittoState

    def plan(self, context: RoundContext) -> Plan[Update]:
        """Let every participant train the global model, and its own near the global one as it was sent."""
        number_clients(self.assignment, context.online, first=1)
        start = self.state.start = self.state.start or context.models
        own, layout = self.state.personal, context.models.layout
        settings = {**context.averaging.settings, kinds.GLOBAL_MU: self.settings.proximal_lambda}
        shared = {kinds.GLOBAL: context.models.one(0)}
        requests = [
            context.request(kinds.TRAIN_BILEVEL, client, own.of(client.key, start).one(0), settings, shared)
            for client in context.participants
        ]

        def average(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            found = [(key, cast(BilevelUpdate, update)) for key, update in updates]
            for key, update in found:
                own.put(key, update.vector)
            trained = np.stack([update.shared for _, update in found])
            weights = np.array([update.num_examples for _, update in found], dtype=np.float64)
            return context.averaging.next_bank(context.models, trained, np.zeros(len(found), dtype=np.int64), weights)

        return Plan(
            requests, lambda key, content: read_bilevel_update(content, layout, self.assignment[key]), average
        )

    def plan_evaluation(self, context: RoundContext) -> Plan[TestResult]:
        """Let every tester test its own model, or the global one where it has none yet."""
        testers = {client.key for client in context.testers} & self.assignment.keys()
        return context.test({key: self.state.personal.of(key, context.models).one(0) for key in testers})

    def final_models(self, models: Models) -> Models:
        """Return the global model, and behind it the clients', in the order of their numbers."""
        return self.state.personal.behind(models, self.assignment)
