"""FedProto: a model for each client, whose features are pulled towards the clients' common mean of each class."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from flwr.app import ArrayRecord, RecordDict

from florets import Objective, Round, State, Steps
from florets.client_app.client import Client
from florets.client_app.training import packed, trained
from florets.strategies.base.models import Models
from florets.strategies.base.round import Tests
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.training.features import NearPrototypes, head_inputs
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import LABELS, MODELS, PROTOTYPES
from florets.zoo.shared.prototypes import (
    PrototypeSettings,
    PrototypeUpdate,
    WithPrototypes,
    class_labels,
    class_means,
    copied,
    global_prototypes,
    own_features,
    pack_prototypes,
)

TRAIN_PROTOTYPES = "florets.zoo.fedproto:train_prototypes"


@dataclass(frozen=True)
class FedProtoSettings(PrototypeSettings):
    """Every client trains its own model, whose features are pulled towards the clients' common mean of each class."""

    purpose: ClassVar[str] = "FedProto shares mean features of classes"


@dataclass
class FedProtoState(State):
    """What is kept for each client; `assignment` numbers them in the order in which they were first seen."""

    personal: PersonalModels = field(default_factory=PersonalModels)
    # Mean feature (C, D) of each class at the client's last training, and its samples of each class (C,).
    prototypes: dict[str, FloatArray] = field(default_factory=dict)
    counts: dict[str, IntArray] = field(default_factory=dict)


class FedProto(WithPrototypes[FedProtoSettings, FedProtoState]):
    """Train a model for each client alone, its features pulled towards those of their class in all clients' models.

    Personal is the whole model; nothing of it is averaged. What clients share are prototypes, the mean input of the
    head for each of C classes, of D entries. Models are kept by the server, 4 R bytes for each client, and
    prototypes, 8 C D bytes: a round sends a model and up to C prototypes, both ways. Where clients keep their models,
    as in the paper, it sends the prototypes alone. Local work is Local-only's and a forward pass over the data.

    Source: Tan et al. 2022 (FedProto, arXiv 2105.00243), Alg. 1 and Eq. 6; lambda 1 is that of its MNIST runs.
    Deviation: prototypes are weighted by samples as in Eq. 6, where the released code takes their plain mean.
    Accuracies are 95.0 and 95.1 % on rotated digits, 99.2 and 99.1 on pairs of labels, 94.9 and 95.2 at Dirichlet 0.3
    (5 seeds). The mean is over the last prototypes of all clients seen, whose models have not changed since; a test
    is of the client's own head over all classes; all clients' models have one architecture and start equal.
    """

    leaving = (MODELS, PROTOTYPES, LABELS)
    Settings = FedProtoSettings
    State = FedProtoState

    def round(self, r: Round) -> Steps:
        """Let every participant train its own model near the prototypes, where there are some."""
        number_clients(self.assignment, r.online)
        state, models = self.state, r.models
        updates = yield self.train_near(
            TRAIN_PROTOTYPES,
            PrototypeUpdate,
            lambda key: state.personal.of(key, models).one(0),
            self._prototypes(),
            r,
        )
        for key, update in updates:
            own = cast(PrototypeUpdate, update)
            state.personal[key] = own.vector
            state.prototypes[key], state.counts[key] = own.prototypes, own.counts
        return models.bank

    def _prototypes(self) -> dict[str, ArrayRecord]:
        """Return the prototypes as they are sent; nothing where there are none, or they count nothing."""
        state = self.state
        keys = sorted(state.prototypes)
        if not self.settings.prototype_lambda or not keys:
            return {}
        prototypes, counts = [state.prototypes[key] for key in keys], [state.counts[key] for key in keys]
        shared = global_prototypes(prototypes, counts, self.averaging.robust)
        return {kinds.PROTOTYPES: pack_prototypes(*shared)}

    def test(self, r: Round) -> Tests:
        """Let every tester test its own model, or the first one where it has none yet."""
        return self.state.personal.test(r, dict.fromkeys(self.assignment, 0))

    def final_models(self, models: Models) -> Models:
        """Return the clients' models, in the order of their numbers."""
        return self.state.personal.in_order(self.assignment, models) if self.assignment else models


def train_prototypes(client: Client) -> RecordDict:
    """Return the model after local training, the mean features of its classes, and the samples of each class.

    Without global prototypes, or with lambda 0, it is trained on the plain loss.

    Source: Tan et al. 2022 (FedProto), Alg. 1: the clients' part. Deviation: prototypes are taken after training, in
    eval mode, over all training samples.
    """
    labels = class_labels(client)
    module, head, weight = client.module, client.names(kinds.HEAD), client.number(kinds.PROTOTYPE_LAMBDA)
    near = weight > 0 and kinds.PROTOTYPES in client.content
    recorded: AbstractContextManager[list[torch.Tensor]] = head_inputs(module, head) if near else nullcontext([])
    with recorded as found:
        objective = None
        if near:
            sent, device = client.states(kinds.PROTOTYPES)[0], client.data.x_train.device
            prototypes, classes = sent[kinds.PROTOTYPES].to(device), sent[kinds.CLASSES].to(device)
            term = NearPrototypes(weight, prototypes, classes, client.task.num_outputs, found)
            objective = Objective((term,))
        arrays, loss = trained(client, client.states()[0], objective=objective)
    # Packed before the features are computed: the arrays may be the memory of the one module.
    model = packed(arrays)
    means, counts = class_means(own_features(client, copied(arrays), head), labels, client.task.num_outputs)
    n = client.num_examples
    return codec.pack(PrototypeUpdate, values=model, train_loss=loss, num_examples=n, counts=counts, rows=means)
