"""Local-only: every client trains its own model and shares nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from florets.strategies.base.models import Models, Updates
from florets.strategies.base.report import State
from florets.strategies.base.round import Plan, Round, Steps, Tests
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import Settings
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.wire import kinds
from florets.task.wire.replies import read_update


@dataclass(frozen=True)
class LocalSettings(Settings):
    """Every client trains alone: the reference without any federation."""

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models", "gradients")}
    asks: ClassVar[frozenset[str]] = frozenset({"models"})


@dataclass
class LocalState(State):
    """The clients' models; `assignment` numbers them in the order in which the clients were first seen."""

    personal: PersonalModels = field(default_factory=PersonalModels)


class Local(Strategy[LocalSettings, LocalState]):
    """One model per client, never averaged: what each client achieves alone.

    The models live on the server, so that clients keep no state. All start equal, from model 0, so that final models
    differ only by the clients' data.
    """

    Settings = LocalSettings
    State = LocalState

    def round(self, r: Round) -> Steps:
        """Let every participant train its own model; a client seen for the first time gets the next number."""
        number_clients(self.assignment, r.online)
        layout, own = r.models.layout, self.state.personal
        requests = [
            r.request(kinds.TRAIN, client, own.of(client.key, r.models).one(0), r.averaging.settings)
            for client in r.participants
        ]
        updates = yield Plan(requests, lambda key, content: read_update(content, layout, self.assignment[key]))
        for key, update in updates:
            models, only = own.of(key, r.models), Updates([(key, update)])
            own[key] = r.averaging.next_bank(models, only, only.models * 0, only.examples)[0]
        return r.models.bank

    def test(self, r: Round) -> Tests:
        """Let every tester test its own model."""
        return self.state.personal.test(r, dict.fromkeys(self.assignment, 0))

    def final_models(self, models: Models) -> Models:
        """Return the clients' models, in the order of their numbers."""
        return self.state.personal.in_order(self.assignment, models) if self.assignment else models
