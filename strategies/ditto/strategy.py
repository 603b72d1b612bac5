"""Ditto: a global model by FedAvg, and for each client a personal one that is pulled towards it."""

from dataclasses import dataclass, field
from typing import ClassVar, cast

from florets.strategies.base.models import Models, Updates
from florets.strategies.base.report import State
from florets.strategies.base.round import Plan, Round, Steps, Tests
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import MODELS_ALONE, Settings
from florets.strategies.shared.messages import TRAIN_BILEVEL, BilevelUpdate
from florets.strategies.shared.personal_models import PersonalModels, number_clients, with_common
from florets.task.keys import setting
from florets.task.wire import codec, kinds
from florets.task.wire.replies import Update


@dataclass(frozen=True)
class DittoSettings(Settings):
    """FedAvg plus a personal model for each client, regularised towards the global one."""

    proximal_lambda: float = setting(
        1.0,
        "weight lambda of the personal models' term lambda/2 |v - global|^2; 0: Local-only next to FedAvg",
        least=0,
    )

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_ALONE


@dataclass
class DittoState(State):
    """The clients' models; `assignment` numbers them from 1, in the order in which the clients were first seen."""

    personal: PersonalModels = field(default_factory=PersonalModels)
    # The first model, from which every personal one starts.
    reference: Models | None = None


class Ditto(Strategy[DittoSettings, DittoState]):
    """Train a global model by FedAvg, and with it each participant's personal model, pulled towards the global one.

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

    def round(self, r: Round) -> Steps:
        """Let every participant train the global model, and its own, pulled towards the global one as it was sent."""
        number_clients(self.assignment, r.online, first=1)
        personal, layout, shared = self.state.personal, r.models.layout, {kinds.GLOBAL: r.models.one(0)}
        start = self.state.reference = self.state.reference or r.models
        settings = {**r.averaging.settings, kinds.GLOBAL_MU: self.settings.proximal_lambda}
        requests = [
            r.request_custom(TRAIN_BILEVEL, client, personal.of(client.key, start).one(0), settings, shared)
            for client in r.participants
        ]
        updates = yield Plan(
            requests,
            lambda key, content: codec.read(BilevelUpdate, content, layout=layout, model=self.assignment[key]),
        )
        common = []
        for key, own in updates:
            personal[key] = own.vector
            common.append((key, Update(0, cast(BilevelUpdate, own).shared, own.num_examples, own.train_loss)))
        rows = Updates(common)
        return r.averaging.next_bank(r.models, rows, rows.models, rows.examples)

    def test(self, r: Round) -> Tests:
        """Let every tester test its own model, or the global one where it has none yet."""
        return self.state.personal.test(r, dict.fromkeys(self.assignment, 0))

    def final_models(self, models: Models) -> Models:
        """Return the global model, and behind it the clients', in the order of their numbers."""
        return with_common(models, self.state.personal, self.assignment)
