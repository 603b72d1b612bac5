"""FedALA: FedAvg whose clients begin with their own mixture of the global model and their upper layers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor
from torch.nn import Module

from florets import Plan, Round, Settings, State, Steps, Strategy, Update, setting
from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.training import packed, trained
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.round import Tests
from florets.strategies.core import BoolArray
from florets.strategies.settings import MODELS_ALONE
from florets.strategies.shared.estimates import last_layer, sent_layout
from florets.strategies.shared.personal_models import PersonalModels, number_clients, with_common
from florets.task.randomness import Purpose
from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.wire import codec, kinds
from florets.task.wire.records import Entry, Layout, MalformedMessage, Vector
from florets.task.wire.replies import read_update

TRAIN_MIXED = "florets.zoo.fedala:train_mixed"
EVALUATE_MIXED = "florets.zoo.fedala:evaluate_mixed"

WINDOW = 10
"""Passes over whose losses the spread is taken that says whether the weights have converged."""
FRACTION = 0.8
"""Part of a client's samples on which weights are learned."""
TOLERANCE = 0.01
"""First weights have converged once the last passes' losses have a smaller standard deviation."""
MOST_PASSES = 50
"""Passes after which first weights are taken as they are."""


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
    follows = MODELS_ALONE


@dataclass
class FedALAState(State):
    """What is kept for each client; `assignment` numbers them from 1, in the order in which they were first seen."""

    # The last layer of the model that the client trained last, flat.
    upper: PersonalModels = field(default_factory=PersonalModels)
    # Weight of the global model in each of its entries; none before a client's second round.
    mixes: PersonalModels = field(default_factory=PersonalModels)


@dataclass(frozen=True)
class MixedUpdate(Update):
    """Reply to `TRAIN_MIXED`: an update, and the global model's weight in each entry of the client's upper layers."""

    mix: Annotated[Vector, codec.Vector(record=kinds.MIX, layout="mix_layout")] = field(kw_only=True)

    def check(self) -> None:
        """Hold the weights to their range."""
        if np.any((self.mix < 0) | (self.mix > 1)):
            raise MalformedMessage(f"{kinds.MIX} holds a weight that is not from 0 to 1")


def mix_layout(layers: Layout) -> Layout:
    """Return the layout of the weights of these layers: one float32 for each entry."""
    return Layout(tuple(Entry(e.name, e.shape, "float32", e.start) for e in layers.entries))


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
    weights in that round; passes are capped; see `learned_weights`.
    """

    Settings = FedALASettings
    State = FedALAState

    def round(self, r: Round) -> Steps:
        """Let every participant train from its mixture; who takes part for the first time, from the global model."""
        number_clients(self.assignment, r.online, first=1)
        state, models = self.state, r.models
        mix, upper = mix_layout(sent_layout(models, [last_layer(models)])), self._upper(models)
        settings = {**r.averaging.settings, **self._settings()}
        asked = set(state.upper)
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

    def test(self, r: Round) -> Tests:
        """Let every tester test its mixture, or the global model where it has no layers of its own yet."""
        models = r.models
        keys = [client.key for client in r.testers if client.key in self.assignment]
        own = {key: self._own(key, models) for key in keys}
        return r.test(dict.fromkeys(keys, models.one(0)), self._settings(), own, EVALUATE_MIXED)

    def final_models(self, models: Models) -> Models:
        """Return the global model, and clients' mixtures with it, by the weights that they learned last."""
        upper, shared, own = self._upper(models), models.bank[0], {}
        for key in self.assignment.keys() & self.state.mixes.keys():
            row = own[key] = shared.copy()
            mix = self.state.mixes[key]
            # A weight of 1 leaves the global entry to the bit.
            row[upper] = mix * shared[upper] + (1.0 - mix) * self.state.upper[key]
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
        if key not in state.upper:
            return {}
        records = {kinds.OWN: ArrayRecord(layers.arrays(state.upper[key]))}
        if key in state.mixes:
            mix = mix_layout(layers).arrays(state.mixes[key])
            records[kinds.MIX] = ArrayRecord(mix)
        return records


Tensors = Mapping[str, Tensor]


def train_mixed(client: Client) -> RecordDict:
    """Return the model after local training, and the weights of the mixture that it began as, where there was one.

    A client that has no layers of its own yet trains the global model.

    Source: Zhang et al. 2023 (FedALA), Alg. 1: the clients' part.
    """
    n = client.num_examples
    if kinds.OWN not in client.content:
        arrays, loss = trained(client, client.states()[0])
        return codec.pack(Update, values=arrays, train_loss=loss, num_examples=n)
    start, weights = _mixed(client)
    mix = packed({name: value.numpy() for name, value in weights.items()})
    arrays, loss = trained(client, start)
    return codec.pack(MixedUpdate, values=arrays, train_loss=loss, num_examples=n, mix=mix)


def evaluate_mixed(client: Client) -> RecordDict:
    """Test this client's mixture, or the global model where it has no layers of its own yet."""
    return evaluate(client, _mixed(client)[0] if kinds.OWN in client.content else None)


def _mixed(client: Client) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the model that this client starts from, and the weights of the mixture, learned on its training data.

    Where the message holds weights, they are trained for one more pass; else from 1 until they have converged.
    """
    shared, own = client.states()[0], client.states(kinds.OWN)[0]
    known = kinds.MIX in client.content
    start = client.states(kinds.MIX)[0] if known else {name: torch.ones(value.shape) for name, value in own.items()}
    weights = learned_weights(
        client.module,
        shared,
        own,
        start,
        client.data.x_train,
        client.data.y_train,
        client.loss,
        client.random(Purpose.LOCAL_AGGREGATION),
        rate=client.number(kinds.MIX_RATE),
        batch_size=int(client.number(kinds.MIX_BATCH, client.training.batch_size)),
        most_passes=1 if known else MOST_PASSES,
    )
    return mixture(shared, own, weights), weights


def mixture(shared: Tensors, own: Tensors, weights: Tensors) -> dict[str, Tensor]:
    """Return the global model with its upper layers replaced by own + (global - own) * weight, entry by entry.

    `shared` is the global model by the names of the state dict; `own` are the client's upper layers, and `weights` in
    [0, 1] one for each of their entries. Integer entries stay global.
    """
    return {
        # lerp is exact at both ends, so that with weights of 1 this is the global model to the bit.
        name: torch.lerp(own[name], value, weights[name]) if name in own and value.is_floating_point() else value
        for name, value in shared.items()
    }


def learned_weights(
    module: Module,
    shared: Tensors,
    own: Tensors,
    weights: Tensors,
    x: Tensor,
    y: Tensor,
    loss: str,
    rng: np.random.Generator,
    *,
    rate: float,
    batch_size: int,
    most_passes: int,
) -> dict[str, Tensor]:
    """Return the weights of a client's `mixture` after some passes over a part of its training samples.

    They start from `weights`. They have converged once the last `WINDOW` passes' losses have a standard deviation
    below `TOLERANCE`. Those of entries without a gradient do not change. The module holds some mixture afterwards.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1 (the weights' update and its repetition until they
    converge). Deviation: a pass's mean loss is what converges, in eval mode; the part of the samples is drawn.
    """
    module.load_state_dict(shared)
    module.eval()
    upper = {name: p for name, p in module.named_parameters() if name in own and p.requires_grad}
    found = {name: value.to(x.device, copy=True) for name, value in weights.items()}
    ends = {name: (own[name].to(x.device), shared[name].to(x.device)) for name in upper}
    chosen = rng.choice(len(x), max(1, round(FRACTION * len(x))), replace=False)
    losses: list[float] = []
    for _ in range(most_passes):
        order, total = torch.from_numpy(rng.permutation(chosen)).to(x.device), 0.0
        for part in order.split(batch_size):  # type: ignore[no-untyped-call]  # torch leaves it without types
            with torch.no_grad():
                for name, parameter in upper.items():
                    parameter.copy_(torch.lerp(*ends[name], found[name]))
            inputs = x[part]
            outputs = module(inputs)
            value = per_sample_losses(outputs, targets_of(inputs, y[part], loss), loss).mean()
            gradients = torch.autograd.grad(value, list(upper.values()))
            for (name, (mine, common)), gradient in zip(ends.items(), gradients, strict=True):
                found[name] = (found[name] - rate * gradient * (common - mine)).clamp(0.0, 1.0)
            total += value.item() * len(part)
        count(gradients=len(chosen))
        losses.append(total / len(chosen))
        if len(losses) > WINDOW and float(np.std(losses[-WINDOW:])) < TOLERANCE:
            break
    return {name: value.cpu() for name, value in found.items()}
