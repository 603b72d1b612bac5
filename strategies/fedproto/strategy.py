"""FedProto: models of single clients, held near mean features of the classes that all clients share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from flwr.app import ArrayRecord

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.models import Models
from florets.strategies.base.state import State
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.prototypes import global_prototypes
from florets.strategies.fedproto.settings import FedProtoSettings
from florets.strategies.shared.feature_layer import feature_width, head_name
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.wire import kinds
from florets.task.wire.prototypes import PrototypeUpdate, pack_prototypes, read_prototype_update
from florets.task.wire.replies import TestResult, Update


@dataclass
class FedProtoState(State):
    """What is kept for each client; `assignment` numbers them in the order in which they were first seen.

    Attributes
    ----------
    prototypes
        Mean feature (C, D) of each class at the client's last training.
    counts
        Its samples of each class (C,).
    """

    personal: PersonalModels = field(default_factory=PersonalModels)
    prototypes: dict[str, FloatArray] = field(default_factory=dict)
    counts: dict[str, IntArray] = field(default_factory=dict)


class FedProto(ClusteredStrategy[FedProtoSettings, FedProtoState]):
    """Train a model for each client alone, whose features are held near those of its class in all clients' models.

    Personal is the whole model; nothing of it is averaged. What clients share are prototypes, the mean input of the
    head for each of C classes, of D entries. Models are kept by the server, 4 R bytes for each client, and
    prototypes, 8 C D bytes: a round sends a model and up to C prototypes, both ways. Where clients keep their models,
    as in the paper, it sends the prototypes alone. Local work is Local-only's and a forward pass over the data.

    Raises
    ------
    ValueError
        By `check`, if the head is not linear, there is no such layer, or the number of classes is not known.

    Source: Tan et al. 2022 (FedProto, arXiv 2105.00243), Alg. 1 and Eq. 6 (means weighted by samples, of which the
    released code has none); lambda 1 is that of its MNIST runs. Deviation: the mean is over the last prototypes of
    all clients seen, whose models have not changed since; a test is of the client's own head over all classes; all
    clients' models have one architecture and start equal.
    """

    Settings = FedProtoSettings
    State = FedProtoState

    def check(self, models: Models) -> None:
        """Refuse a model whose features' size is not plain, and a task whose number of classes is not known."""
        super().check(models)
        feature_width(models, self.settings.head_layers)
        if self.num_outputs < 1:
            raise ValueError("FedProto needs the number of classes: give num_outputs.")

    def plan(self, context: RoundContext) -> Plan[Update]:
        """Let every participant train its own model near the global prototypes, where there are some."""
        number_clients(self.assignment, context.online)
        state, models = self.state, context.models
        others: dict[str, ArrayRecord] = {}
        if self.settings.prototype_lambda and state.counts:
            keys = sorted(state.counts)
            shared = global_prototypes([state.prototypes[key] for key in keys], [state.counts[key] for key in keys])
            others[kinds.PROTOTYPES] = pack_prototypes(*shared)
        settings = {
            **context.averaging.settings,
            kinds.PROTOTYPE_LAMBDA: self.settings.prototype_lambda,
            kinds.HEAD: [head_name(models, self.settings.head_layers)],
        }
        requests = [
            context.request(
                kinds.TRAIN_PROTOTYPES, client, state.personal.of(client.key, models).one(0), settings, others
            )
            for client in context.participants
        ]

        def keep(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            for key, update in updates:
                own = cast(PrototypeUpdate, update)
                state.personal.put(key, own.vector)
                state.prototypes[key], state.counts[key] = own.prototypes, own.counts
            return models.bank

        classes, width = self.num_outputs, feature_width(models, self.settings.head_layers)
        return Plan(
            requests,
            lambda key, content: read_prototype_update(content, models.layout, self.assignment[key], classes, width),
            keep,
        )

    def plan_evaluation(self, context: RoundContext) -> Plan[TestResult]:
        """Let every tester test its own model."""
        testers = {client.key for client in context.testers} & self.assignment.keys()
        return context.test({key: self.state.personal.of(key, context.models).one(0) for key in testers})

    def final_models(self, models: Models) -> Models:
        """Return the clients' models, in the order of their numbers."""
        return self.state.personal.in_order(self.assignment, models) if self.assignment else models
