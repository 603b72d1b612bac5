"""`PersonalModels`: models of single clients, kept by the server; their numbers, and their order at the end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from florets.strategies.base.method import PerClient
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round, Tests
from florets.strategies.core import FloatArray


@dataclass(eq=False)
class PersonalModels(PerClient):
    """One flat model (R,) per client."""

    def of(self, key: str, start: Models, index: int = 0) -> Models:
        """Return a client's model; one that has none yet starts from model `index` of `start`."""
        if key not in self.data:
            return start if start.count == 1 else start.replaced(start.bank[index : index + 1])
        return start.replaced(self.data[key][np.newaxis].astype(np.float64))

    def test(self, r: Round, groups: Mapping[str, int]) -> Tests:
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


def with_common(models: Models, own: Mapping[str, FloatArray], assignment: Mapping[str, int]) -> Models:
    """Return model 0, the common one, and behind it each client's own, in the order of their numbers."""
    ordered = sorted(assignment, key=assignment.__getitem__)
    return models.replaced(np.stack([models.bank[0], *(own.get(key, models.bank[0]) for key in ordered)]))
