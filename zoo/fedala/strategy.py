"""FedALA: FedAvg whose clients begin with their own mixture of the global model and their upper layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets import Plan, Round, Settings, State, Steps, Strategy, Update, setting
from florets.strategies.base.models import Models, Updates
from florets.strategies.core import BoolArray
from florets.strategies.shared.estimates import last_layer, sent_layout
from florets.strategies.shared.personal_models import PersonalModels, number_clients, with_common
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import read_update
from florets.zoo.fedala.messages import EVALUATE_MIXED, TRAIN_MIXED, MixedUpdate, mix_layout


@dataclass(frozen=True)
class FedALASettings(Settings):
    """FedAvg whose clients mix the global model's last layer with their own, by weights that they learn."""

    weight_rate: float = setting(1.0, "step size eta of the weights; 0 leaves them at 1, which is FedAvg", least=0)
    weight_batch: int | None = setting(
        10, "samples of a step of the weights; null: those of a step of training (train.batch_size)", least=1
    )

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}


@dataclass
class FedALAState(State):
    """What is kept for each client; `assignment` numbers them from 1, in the order in which they were first seen.

    Attributes
    ----------
    upper
        The last layer of the model that the client trained last, flat.
    mixes
        Weight of the global model in each of their entries; none before a client's second round.
    """

    upper: PersonalModels = field(default_factory=PersonalModels)
    mixes: PersonalModels = field(default_factory=PersonalModels)


class FedALA(Strategy[FedALASettings, FedALAState]):
    """Average one model, and let each client mix its last layer with its own last one before it trains or tests.

    Personal is the last layer of the model that a client trained last, U entries, and as many weights. The mixture is
    own + (global - own) * weight. Weights start at 1; in a client's second round they are learned until they
    converge, later by one pass over part of its data. All of it is kept by the server, 8 U bytes for each client: a
    round sends the model and 2 U entries down, the model and U up (the paper's clients keep theirs, and send what
    FedAvg sends). A test is of the mixture with the newest global model, after a further pass, as in the paper. At
    the end model 0 is the global one, and the others are the clients' mixtures by the weights that they learned last.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1; eta 1, batches of 10, 80 % of the data and the last
    layer are the released code's defaults, the threshold 0.01 is the paper's. Deviation: who is not sampled learns no
    weights in that round; passes are capped; see `florets.zoo.fedala.client`.
    """

    Settings = FedALASettings
    State = FedALAState

    def round(self, r: Round) -> Steps:
        """Let every participant train from its mixture; who takes part for the first time, from the global model."""
        number_clients(self.assignment, r.online, first=1)
        state, models = self.state, r.models
        mix, upper = mix_layout(sent_layout(models, [last_layer(models)])), self._upper(models)
        settings = {**r.averaging.settings, **self._settings()}
        asked = set(state.upper.vectors)
        requests = [
            r.request_custom(TRAIN_MIXED, client, models.one(0), settings, self._own(client.key, models))
            for client in r.participants
        ]

        def read(key: str, content: RecordDict) -> Update:
            if key not in asked:
                return read_update(content, models.layout, self.assignment[key])
            sizes = {"layout": models.layout, "mix_layout": mix}
            return codec.read(MixedUpdate, content, model=self.assignment[key], **sizes)

        updates = yield Plan(requests, read)
        for key, update in updates:
            state.upper[key] = update.vector[upper]
            if isinstance(update, MixedUpdate):
                state.mixes[key] = update.mix
        rows = Updates(updates)
        return r.averaging.next_bank(models, rows, rows.models * 0, rows.examples)

    def test(self, r: Round) -> Plan[TestResult]:
        """Let every tester test its mixture, or the global model where it has no layers of its own yet."""
        models = r.models
        keys = [client.key for client in r.testers if client.key in self.assignment]
        own = {key: self._own(key, models) for key in keys}
        return r.test(dict.fromkeys(keys, models.one(0)), self._settings(), own, EVALUATE_MIXED)

    def final_models(self, models: Models) -> Models:
        """Return the global model, and clients' mixtures with it, by the weights that they learned last."""
        upper, shared, own = self._upper(models), models.bank[0], {}
        for key in self.assignment.keys() & self.state.mixes.vectors.keys():
            row = own[key] = shared.copy()
            mix = self.state.mixes.vectors[key].astype(np.float64)
            # A weight of 1 leaves the global entry to the bit.
            row[upper] = mix * shared[upper] + (1.0 - mix) * self.state.upper.vectors[key]
        return with_common(models, own, self.assignment)

    def _upper(self, models: Models) -> BoolArray:
        """Return the mask (R,) of the last layer."""
        return models.layout.mask([last_layer(models)])

    def _settings(self) -> dict[str, float]:
        """Return what the messages say of how weights are learned."""
        settings = self.settings
        batch = {} if settings.weight_batch is None else {kinds.MIX_BATCH: settings.weight_batch}
        return {**batch, kinds.MIX_RATE: settings.weight_rate}

    def _own(self, key: str, models: Models) -> dict[str, ArrayRecord]:
        """Return a client's own layers and their weights as they are sent; nothing where it has none."""
        layers, state = sent_layout(models, [last_layer(models)]), self.state
        if key not in state.upper.vectors:
            return {}
        records = {kinds.OWN: ArrayRecord(layers.arrays(state.upper.vectors[key].astype(np.float64)))}
        if key in state.mixes.vectors:
            mix = mix_layout(layers).arrays(state.mixes.vectors[key].astype(np.float64))
            records[kinds.MIX] = ArrayRecord(mix)
        return records
