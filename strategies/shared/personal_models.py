"""`PersonalModels`: models of single clients, kept by the server; `OneGroup`: strategies of one such method."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.method import PerClient, PersonalMethod
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import M, S, Strategy
from florets.strategies.core import FloatArray
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import Update


@dataclass(eq=False)
class PersonalModels(PerClient):
    """One flat model (R,) per client."""

    def of(self, key: str, start: Models, index: int = 0) -> Models:
        """Return a client's model; one that has none yet starts from model `index` of `start`."""
        if key not in self.vectors:
            return start if start.count == 1 else start.replaced(start.bank[index : index + 1])
        return start.replaced(self.vectors[key][np.newaxis].astype(np.float64))

    def test(self, r: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Plan the evaluation in which each tester with a group tests its own model, or its group's before it has."""
        testers = {client.key for client in r.testers} & groups.keys()
        return r.test({key: self.of(key, r.models, groups[key]).one(0) for key in testers})

    def by_client(self) -> dict[str, FloatArray]:
        """Return the models (R,) of the clients that have one, float64."""
        return dict(self)

    def in_order(self, assignment: dict[str, int], start: Models) -> Models:
        """Return the models of all clients, in the order of their numbers; see `of` for `start`."""
        ordered = sorted(assignment, key=assignment.__getitem__)
        return start.replaced(np.concatenate([self.of(key, start).bank for key in ordered]))


def number_clients(assignment: dict[str, int], clients: Iterable[Client], first: int = 0) -> None:
    """Give each client that has none a number, in the order in which they are first seen, from `first` on."""
    for client in clients:
        assignment.setdefault(client.key, first + len(assignment))


class OneGroup(Strategy[S, M]):
    """Run a personal method on one model for all clients; `assignment` numbers the clients as they are first seen.

    At the end model 0 is the common one, if the method trains one, and the others are the clients', in the order of
    their numbers; a client that has none of its own stands with the common one.
    """

    Method: ClassVar[type[PersonalMethod[Any, Any]]]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.clients = self.Method(self.settings).within(lambda: self.state, self.num_outputs, self.averaging.robust)

    def all_leaving(self) -> frozenset[str]:
        """Return the names with those of the method."""
        return super().all_leaving() | frozenset(self.Method.leaving)

    def check(self, models: Models) -> None:
        """Raise ValueError where the method does not fit the first model."""
        super().check(models)
        self.clients.check(models)

    def round(self, r: Round) -> Steps:
        """Let every participant train as the method has it."""
        number_clients(self.assignment, r.online, first=int(self.clients.trains_groups))
        plan = self.clients.train(r, {client.key: 0 for client in r.participants})

        def read(key: str, content: RecordDict) -> Update:
            return replace(plan.read(key, content), model=self.assignment[key])

        updates = yield Plan(plan.requests, read)
        shared = updates if plan.keep is None else plan.keep(updates)
        if not self.clients.trains_groups:
            return None
        rows = Updates(shared)
        return r.averaging.next_bank(r.models, rows, rows.models * 0, rows.examples)

    def test(self, r: Round) -> Plan[TestResult]:
        """Let every tester test what is its own, or the common model where it has nothing yet."""
        return self.clients.test(r, dict.fromkeys(self.assignment, 0))

    def final_models(self, models: Models) -> Models:
        """Return the common model, if there is one, and behind it the clients', in the order of their numbers."""
        own = self.clients.own_models(models, dict.fromkeys(self.assignment, 0))
        rows = [own.get(key, models.bank[0]) for key in sorted(self.assignment, key=self.assignment.__getitem__)]
        if self.clients.trains_groups:
            rows.insert(0, models.bank[0])
        return models.replaced(np.stack(rows)) if rows else models
