"""FedALA: FedAvg whose clients begin with their own mixture of the global model and their upper layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets import Plan, Round, Settings, State, Update, setting
from florets.strategies.base.method import PersonalMethod
from florets.strategies.base.models import Models
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.shared.estimates import last_layer, sent_layout
from florets.strategies.shared.personal_models import OneGroup, PersonalModels
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import read_update
from florets.zoo.fedala.messages import EVALUATE_MIXED, TRAIN_MIXED, MixedUpdate, mix_layout


@dataclass(frozen=True)
class FedALASettings(Settings):
    """FedAvg whose clients mix the global model's upper layers with their own, by weights that they learn."""

    layers: list[str] = setting([], "name prefixes of the layers that are mixed; none: the last one")
    weight_rate: float = setting(1.0, "step size eta of the weights; 0 leaves them at 1, which is FedAvg", least=0)
    weight_batch: int | None = setting(
        10, "samples of a step of the weights; null: those of a step of training (train.batch_size)", least=1
    )

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}


@dataclass
class FedALAKept:
    """What is kept for each client.

    Attributes
    ----------
    upper
        The upper layers of the model that the client trained last, flat.
    mixes
        Weight of the group's model in each of their entries; none before a client's second round.
    """

    upper: PersonalModels = field(default_factory=PersonalModels)
    mixes: PersonalModels = field(default_factory=PersonalModels)


class FedALAClients(PersonalMethod[FedALASettings, FedALAKept]):
    """Each participant trains its group's model, from a mixture with its own upper layers."""

    Settings = FedALASettings
    Kept = FedALAKept
    name = "fedala"

    def check(self, models: Models) -> None:
        """Refuse layers that the model does not have."""
        sent_layout(models, self._layers(models))

    def train(self, r: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Let every participant train from its mixture; who takes part for the first time, from its group's model."""
        kept, models = self.kept, r.models
        layers = sent_layout(models, self._layers(models))
        settings = {**r.averaging.settings, **self._settings()}
        asked = {client.key for client in r.participants if client.key in kept.upper.vectors}
        requests = [
            r.request_custom(
                TRAIN_MIXED, client, models.one(groups[client.key]), settings, self._own(client.key, models)
            )
            for client in r.participants
            if client.key in groups
        ]

        def read(key: str, content: RecordDict) -> Update:
            if key not in asked:
                return read_update(content, models.layout, groups[key])
            return codec.read(
                MixedUpdate, content, layout=models.layout, model=groups[key], mix_layout=mix_layout(layers)
            )

        def keep(updates: Sequence[tuple[str, Update]]) -> Sequence[tuple[str, Update]]:
            upper = self._upper(models)
            for key, update in updates:
                self.kept.upper[key] = update.vector[upper]
                if isinstance(update, MixedUpdate):
                    self.kept.mixes[key] = update.mix
            return updates

        return Plan(requests, read, keep=keep)

    def test(self, r: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Let every tester test its mixture, or its group's model where it has no layers of its own yet."""
        models = r.models
        keys = [client.key for client in r.testers if client.key in groups]
        return r.test(
            {key: models.one(groups[key]) for key in keys},
            self._settings(),
            {key: self._own(key, models) for key in keys},
            EVALUATE_MIXED,
        )

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the mixtures by the weights that clients learned last, with their groups' models as they are now."""
        upper, own = self._upper(models), {}
        for key in groups.keys() & self.kept.mixes.vectors.keys():
            shared = models.bank[groups[key]]
            row = own[key] = shared.copy()
            mix = self.kept.mixes.vectors[key].astype(np.float64)
            # A weight of 1 leaves the group's entry to the bit.
            row[upper] = mix * shared[upper] + (1.0 - mix) * self.kept.upper.vectors[key]
        return own

    def _layers(self, models: Models) -> Sequence[str]:
        """Return the name prefixes of the layers that are mixed."""
        return self.settings.layers or last_layer(models)

    def _upper(self, models: Models) -> BoolArray:
        """Return the mask (R,) of these layers."""
        return models.layout.mask(self._layers(models))

    def _settings(self) -> dict[str, float]:
        """Return what the messages say of how weights are learned."""
        settings = self.settings
        batch = {} if settings.weight_batch is None else {kinds.MIX_BATCH: settings.weight_batch}
        return {
            **batch,
            kinds.MIX_RATE: settings.weight_rate,
        }

    def _own(self, key: str, models: Models) -> dict[str, ArrayRecord]:
        """Return a client's own layers and their weights as they are sent; nothing where it has none."""
        layers, kept = sent_layout(models, self._layers(models)), self.kept
        if key not in kept.upper.vectors:
            return {}
        records = {kinds.OWN: ArrayRecord(layers.arrays(kept.upper.vectors[key].astype(np.float64)))}
        if key in kept.mixes.vectors:
            mix = mix_layout(layers).arrays(kept.mixes.vectors[key].astype(np.float64))
            records[kinds.MIX] = ArrayRecord(mix)
        return records


@dataclass
class FedALAState(FedALAKept, State):
    """What is kept for each client; `assignment` numbers them from 1, in the order in which they were first seen."""


class FedALA(OneGroup[FedALASettings, FedALAState]):
    """Average one model, and let each client mix its upper layers with its own last ones before it trains or tests.

    Personal are the upper layers (by default the last one) of the model that a client trained last, U entries, and as
    many weights. The mixture is own + (global - own) * weight. Weights start at 1; in a client's second round they
    are learned until they converge, later by one pass over part of its data. All of it is kept by the server, 8 U
    bytes for each client: a round sends the model and 2 U entries down, the model and U up (the paper's clients keep
    theirs, and send what FedAvg sends). A test is of the mixture with the newest global model, after a further pass,
    as in the paper. It costs a client that pass, `sample_fraction` of its samples, in each round and each test, and
    up to `most_passes` until its weights have converged. At the end model 0 is the global one, and the others are the
    clients' mixtures by the weights that they learned last.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1; eta 1, batches of 10, 80 % of the data and the last
    layer are the released code's defaults, the threshold 0.01 is the paper's. Deviation: who is not sampled learns no
    weights in that round; passes are capped; see `florets.zoo.fedala.client`.
    """

    Settings = FedALASettings
    State = FedALAState
    Method = FedALAClients
