"""FedALA: FedAvg whose clients begin with their own mixture of the global model and their upper layers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.models import Models
from florets.strategies.base.state import State
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.core import FloatArray
from florets.strategies.fedala.settings import FedAlaSettings
from florets.strategies.shared.estimates import last_layer, sent_layout
from florets.strategies.shared.personal_models import PersonalModels, number_clients
from florets.task.wire import kinds
from florets.task.wire.mixed import MixedUpdate, mix_layout, read_mixed_update
from florets.task.wire.replies import TestResult, Update


@dataclass
class FedAlaState(State):
    """What is kept for each client; `assignment` numbers them from 1, in the order in which they were first seen.

    Attributes
    ----------
    upper
        The upper layers of the model that the client trained last, flat.
    mixes
        Weight of the global model in each of their entries; none before a client's second round.
    """

    upper: PersonalModels = field(default_factory=PersonalModels)
    mixes: PersonalModels = field(default_factory=PersonalModels)


class FedAla(ClusteredStrategy[FedAlaSettings, FedAlaState]):
    """Average one model, and let each client mix its upper layers with its own last ones before it trains or tests.

    Personal are the upper layers (by default the last one) of the model that a client trained last, U entries, and as
    many weights. The mixture is own + (global - own) * weight. Weights start at 1; in a client's second round they
    are learned until they converge, later by one pass over part of its data. All of it is kept by the server, 8 U
    bytes for each client: a round sends the model and 2 U entries down, the model and U up (the paper's clients keep
    theirs, and send what FedAvg sends). A test is of the mixture with the newest global model, after a further pass,
    as in the paper. It costs a client that pass, `sample_fraction` of its samples, in each round and each test, and
    up to `most_passes` until its weights have converged. At the end model 0 is the global one, and the others are the
    clients' mixtures by the weights that they learned last.

    Raises
    ------
    ValueError
        By `check`, if a prefix in `layers` fits no layer.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1; eta 1, 80 % of the data and the last layer are the
    released code's defaults, the threshold 0.01 is the paper's. Deviation: who is not sampled learns no weights in
    that round; passes are capped; see `florets.task.training.local_aggregation`.
    """

    Settings = FedAlaSettings
    State = FedAlaState

    def check(self, models: Models) -> None:
        """Refuse layers that the model does not have."""
        super().check(models)
        sent_layout(models, self._layers(models))

    def plan(self, context: RoundContext) -> Plan[Update]:
        """Let every participant train from its mixture; who takes part for the first time, from the global model."""
        number_clients(self.assignment, context.online, first=1)
        state, models = self.state, context.models
        layers = sent_layout(models, self._layers(models))
        settings, shared = {**context.averaging.settings, **self._settings()}, models.one(0)
        asked = {client.key for client in context.participants if client.key in state.upper.vectors}
        requests = [
            context.request(kinds.TRAIN_MIXED, client, shared, settings, self._own(client.key, models))
            for client in context.participants
        ]

        def average(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            found = [(key, cast(MixedUpdate, update)) for key, update in updates]
            upper = models.layout.mask(self._layers(models))
            for key, update in found:
                state.upper.put(key, update.vector[upper])
                if update.mix is not None:
                    state.mixes.put(key, update.mix)
            trained = np.stack([update.vector for _, update in found])
            weights = np.array([update.num_examples for _, update in found], dtype=np.float64)
            return context.averaging.next_bank(models, trained, np.zeros(len(found), dtype=np.int64), weights)

        def read(key: str, content: RecordDict) -> MixedUpdate:
            mix = mix_layout(layers) if key in asked else None
            return read_mixed_update(content, models.layout, self.assignment[key], mix)

        return Plan(requests, read, average)

    def plan_evaluation(self, context: RoundContext) -> Plan[TestResult]:
        """Let every tester test its mixture, or the global model where it has no layers of its own yet."""
        keys = [client.key for client in context.testers if client.key in self.assignment]
        shared = context.models.one(0)
        return context.test(
            dict.fromkeys(keys, shared), self._settings(), {key: self._own(key, context.models) for key in keys}
        )

    def final_models(self, models: Models) -> Models:
        """Return the global model, and behind it the clients' mixtures, in the order of their numbers."""
        upper = models.layout.mask(self._layers(models))
        shared, rows = models.bank[0], [models.bank[0]]
        for key in sorted(self.assignment, key=self.assignment.__getitem__):
            row = shared.copy()
            if key in self.state.mixes.vectors:
                mix = self.state.mixes.vectors[key].astype(np.float64)
                # A weight of 1 leaves the global entry to the bit.
                row[upper] = mix * shared[upper] + (1.0 - mix) * self.state.upper.vectors[key]
            rows.append(row)
        return models.replaced(np.stack(rows))

    def _layers(self, models: Models) -> Sequence[str]:
        """Return the name prefixes of the layers that are mixed."""
        return self.settings.layers or last_layer(models)

    def _settings(self) -> dict[str, float]:
        """Return what the messages say of how weights are learned."""
        settings = self.settings
        return {
            kinds.MIX_RATE: settings.weight_rate,
            kinds.MIX_FRACTION: settings.sample_fraction,
            kinds.MIX_TOLERANCE: settings.tolerance,
            kinds.MIX_PASSES: settings.most_passes,
        }

    def _own(self, key: str, models: Models) -> dict[str, ArrayRecord]:
        """Return a client's own layers and their weights as they are sent; nothing where it has none."""
        layers, state = sent_layout(models, self._layers(models)), self.state
        if key not in state.upper.vectors:
            return {}
        records = {kinds.OWN: ArrayRecord(layers.arrays(state.upper.vectors[key].astype(np.float64)))}
        if key in state.mixes.vectors:
            mix = mix_layout(layers).arrays(state.mixes.vectors[key].astype(np.float64))
            records[kinds.MIX] = ArrayRecord(mix)
        return records
