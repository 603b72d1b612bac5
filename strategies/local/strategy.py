"""Local-only: every client trains its own model and shares nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from florets.strategies.base.round import Plan, Round
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.report import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.strategies.settings import RunKeys, Settings
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True)
class LocalSettings(Settings):
    """Every client trains alone: the reference without any federation."""

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models", "gradients")}

    def unruled(self, run: RunKeys) -> list[str]:
        """Refuse a rule without any average."""
        return [f"robust={run.robust}: strategy=local averages nothing; use another strategy, or robust=none."]


@dataclass
class LocalState(State):
    """The clients' models; `assignment` numbers them in the order in which the clients were first seen."""

    personal: PersonalModels = field(default_factory=PersonalModels)


class Local(Strategy[LocalSettings, LocalState]):
    """One model per client, never averaged: what each client reaches alone.

    The models live on the server, so that clients keep no state. All start equal, from model 0: what differs between
    two clients' models at the end is their data.
    """

    Settings = LocalSettings
    State = LocalState

    def plan(self, context: Round) -> Plan[Update]:
        """Let every participant train its own model; a client seen for the first time gets the next number."""
        number_clients(self.assignment, context.online)
        layout, own = context.models.layout, self.state.personal
        requests = [
            context.request(
                kinds.TRAIN, client, own.of(client.key, context.models).one(0), context.averaging.settings
            )
            for client in context.participants
        ]

        def keep(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            for key, update in updates:
                models, only = own.of(key, context.models), Updates([(key, update)])
                own[key] = context.averaging.next_bank(models, only, only.models * 0, only.examples)[0]
            return context.models.bank

        return Plan(requests, lambda key, content: read_update(content, layout, self.assignment[key]), keep)

    def plan_evaluation(self, context: Round) -> Plan[TestResult]:
        """Let every tester test its own model."""
        return self.state.personal.test(context, dict.fromkeys(self.assignment, 0))

    def final_models(self, models: Models) -> Models:
        """Return the clients' models, in the order of their numbers."""
        return self.state.personal.in_order(self.assignment, models) if self.assignment else models
