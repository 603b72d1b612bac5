"""Ditto: a global model by FedAvg, and for each client a personal one that is pulled towards it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from flwr.app import RecordDict

from florets.strategies.base.method import PersonalMethod, of_groups
from florets.strategies.base.models import Models
from florets.strategies.base.report import State
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import FloatArray
from florets.strategies.settings import Settings
from florets.strategies.shared.messages import TRAIN_BILEVEL, BilevelUpdate
from florets.strategies.shared.personal_models import OneGroup, PersonalModels
from florets.task.keys import setting
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
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
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}


@dataclass
class DittoKept:
    """The clients' models.

    Attributes
    ----------
    reference
        The first model, from which every personal one starts.
    """

    personal: PersonalModels = field(default_factory=PersonalModels)
    reference: Models | None = None


class DittoClients(PersonalMethod[DittoSettings, DittoKept]):
    """Each participant trains its group's model, and also its own, pulled towards the group's as it was sent."""

    Settings = DittoSettings
    Kept = DittoKept
    name = "ditto"

    def train(self, r: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Let every participant train both models."""
        kept, models = self.kept, r.models
        start = kept.reference = kept.reference or models
        settings = {**r.averaging.settings, kinds.GLOBAL_MU: self.settings.proximal_lambda}
        requests = []
        for client in r.participants:
            if client.key in groups:
                own = kept.personal.of(client.key, start)
                shared = {kinds.GLOBAL: models.one(groups[client.key])}
                requests.append(r.request_custom(TRAIN_BILEVEL, client, own.one(0), settings, shared))

        def read(key: str, content: RecordDict) -> Update:
            return codec.read(BilevelUpdate, content, layout=models.layout, model=groups[key])

        return Plan(requests, read, keep=self._keep)

    def _keep(self, updates: Sequence[tuple[str, Update]]) -> list[tuple[str, Update]]:
        """Keep the clients' models, and return those of the groups."""
        for key, update in updates:
            self.kept.personal[key] = update.vector
        return of_groups(updates, [cast(BilevelUpdate, update).shared for _, update in updates])

    def test(self, r: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Let every tester test its own model, or its group's where it has none yet."""
        return self.kept.personal.test(r, groups)

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the clients' models."""
        return self.kept.personal.by_client()


@dataclass
class DittoState(DittoKept, State):
    """The clients' models; `assignment` numbers them from 1, in the order in which the clients were first seen."""


class Ditto(OneGroup[DittoSettings, DittoState]):
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
    Method = DittoClients
