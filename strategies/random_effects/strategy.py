"""Random effects: each client tests its group's model with own coefficients, shrunk towards the group's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.exchange import Replies
from florets.strategies.base.method import Method
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round, Tests
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import LEAST_CLIENTS, UPDATE_FACTOR, lower_median
from florets.strategies.random_effects.messages import TERMS, OwnTerms, contrasts, offset_basis
from florets.strategies.random_effects.mixed_model import Penalty, Terms, fit
from florets.strategies.settings import Settings
from florets.strategies.shared.estimates import last_layer
from florets.task.training.settings import Training
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import STATISTICS

MOST_COEFFICIENTS = 500
"""Coefficients of a mixed model: its server inverts a matrix of this size for each client, tens of times."""
PASSES = 3
"""Exchanges before a test, each at the client's present coefficients, that classes need; values need one."""
FAR = f"rejected as an outlier: its loss or its derivatives are over {UPDATE_FACTOR:g} times the others'"


@dataclass
class RandomEffectsKept:
    """What clients add to their group's model (P,), and their group, at their last evaluation."""

    effects: dict[str, FloatArray] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """The part of a model that a mixed model is fitted to: names of its weights, if any, and biases; their places.

    `depth` is the number of inputs, 0 of biases alone; `basis` turns coefficients (P,) into the layer's entries.
    """

    names: Sequence[str]
    places: IntArray
    depth: int
    basis: FloatArray
    is_all: bool


class RandomEffectsClients(Method[Settings, RandomEffectsKept]):
    """The groups' models are trained as without the method; before a test each client gets coefficients of its own.

    They are those of the last layer, whose inputs are fixed features. A client sends the loss of its current model on
    its training data, with gradient and Hessian by these coefficients. The server fits a mixed model to each group
    (`mixed_model.fit`): common coefficients, the variance of each one between clients, and each client's own, which
    are the better the more records it has, and else near the common ones. Of a linear model the common ones are
    estimated together with these, as owners differ; those of a network stay as they were trained.

    Classes take `PASSES` of it, each at the coefficients that the last one found. A client of fewer than
    `MIN_RECORDS` records, or that keeps its statistics back, has its group's model, as newcomers have.

    Source: Laird and Ware 1982 for the model; Breslow and Clayton 1993 (penalised quasi-likelihood) for classes.
    Deviation: see `mixed_model.fit`.
    """

    leaving = (STATISTICS,)
    Kept = RandomEffectsKept
    trains = False
    weights_differ: ClassVar[bool]
    """Whether clients have weights of their own besides biases."""

    def check(self, models: Models) -> None:
        """Refuse a model whose last layer is no linear one with a bias, or too large."""
        if self.num_outputs < 1:
            raise ValueError(f"personal={self.name}: needs the number of outputs: give num_outputs.")
        size = self.fitted(models).basis.shape[1]
        if size > MOST_COEFFICIENTS:
            raise ValueError(
                f"personal={self.name}: the model's last layer has {size} coefficients for each client, and more "
                f"than {MOST_COEFFICIENTS} are too many for a mixed model; use personal=none, personal=intercept, or "
                "a model whose last layer has fewer inputs."
            )

    def fitted(self, models: Models) -> Layer:
        """Return the last layer, or its biases alone where weights do not differ and cannot be fitted with them."""
        name, count = last_layer(models), self.num_outputs
        entries = {entry.name: entry for entry in models.layout.entries}
        weight, bias = entries.get(f"{name}.weight"), entries.get(f"{name}.bias")
        if weight is None or bias is None or bias.shape != (count,) or weight.shape != (count, *weight.shape[1:2]):
            raise ValueError(
                f"personal={self.name}: the model's last layer {name!r} is not a linear layer with a bias for each "
                f"of its {count} outputs; use one that is (task.model=linear: task.model_options.bias=true), or "
                "personal=none."
            )
        places, depth = np.arange(models.layout.size), weight.shape[1]
        whole = np.concatenate([places[weight.place], places[bias.place]])
        layer = Layer(
            [weight.name, bias.name], whole, depth, contrasts(count, depth), len(whole) == models.layout.size
        )
        if self.weights_differ or (layer.is_all and layer.basis.shape[1] <= MOST_COEFFICIENTS):
            return layer
        return Layer([bias.name], places[bias.place], 0, contrasts(count, 0), False)

    def test(self, r: Round, groups: Mapping[str, int]) -> Tests:
        """Let every tester with a group send its terms, and test its group's model with what was fitted."""
        testers = [client for client in r.testers if client.key in groups]
        if not testers:
            return r.test({})
        models, kept, layer = r.models, self.kept, self.fitted(r.models)
        found: dict[str, FloatArray] = {}
        for _ in range(1 if self.num_outputs == 1 else PASSES):
            replies = self._ask(r, testers, groups, layer, found)
            for group in sorted(set(groups.values())):
                members = {key: own for key, own in replies.ok if groups[key] == group}
                found |= self._fit(r, models.bank[group], layer, members, found)
        kept.effects |= found
        kept.groups |= {key: groups[key] for key in found}
        own_models = self.own_models(models, groups)
        # A client that never answered tests its group's model as it is.
        return r.test(
            {
                client.key: models.replaced(own_models[client.key][np.newaxis]).one(0)
                if client.key in own_models
                else models.one(groups[client.key])
                for client in testers
            }
        )

    def _ask(
        self,
        r: Round,
        testers: Sequence[Client],
        groups: Mapping[str, int],
        layer: Layer,
        found: Mapping[str, FloatArray],
    ) -> Replies[OwnTerms]:
        """Ask testers for their terms at what was `found` for them, or at their group's model before that."""
        models, settings, requests = r.models, {kinds.HEAD: list(layer.names)}, []
        for client in testers:
            group = groups[client.key]
            model = models.one(group)
            if client.key in found:
                moved = _with(models.bank[group], layer, found[client.key])
                model = models.replaced(moved[np.newaxis]).one(0)
            requests.append(r.request_custom(TERMS, client, model, settings, category="query"))

        def read(_: str, content: RecordDict) -> OwnTerms:
            own = codec.read(OwnTerms, content, P=layer.basis.shape[1])
            if self.num_outputs == 1:
                own.check_squares()
            return own

        replies = r.ask(requests, read)
        return r.reject(replies, _outliers(replies.ok), FAR)

    def _fit(
        self,
        r: Round,
        model: FloatArray,
        layer: Layer,
        members: Mapping[str, OwnTerms],
        places: Mapping[str, FloatArray],
    ) -> dict[str, FloatArray]:
        """Fit a group's mixed model (R,); return its members' effects (P,), 0 for those that sent nothing."""
        basis, width = layer.basis, offset_basis(self.num_outputs).shape[1]
        size = basis.shape[1]
        nothing = np.zeros(size)
        own = {key: terms for key, terms in members.items() if terms.is_told}
        effects = dict.fromkeys(members, nothing)
        if not own:
            return effects
        terms = Terms(
            np.stack([places.get(key, nothing) for key in own]),
            np.array([one.value for one in own.values()]),
            np.stack([one.gradient for one in own.values()]),
            np.stack([one.hessian for one in own.values()]),
            np.array([one.num_examples for one in own.values()], dtype=np.float64),
            width,
            is_quadratic=self.num_outputs == 1,
        )
        penalty = None
        if layer.is_all:
            training = Training.received(r.config)
            is_bias = np.arange(len(layer.places)) >= self.num_outputs * layer.depth
            ridge = training.penalty(is_bias) if training.solver == "newton" else np.zeros(len(is_bias))
            penalty = Penalty((ridge * model[layer.places]) @ basis, basis.T @ (ridge[:, None] * basis))
        # Biases come last.
        is_random = (np.arange(size) >= size - width) | self.weights_differ
        fitted = fit(terms, is_random, penalty)
        return effects | dict(zip(own, fitted.common + fitted.effects, strict=True))

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the groups' models with the effects of the clients that have some for the group they are in."""
        kept, layer = self.kept, self.fitted(models)
        return {
            key: _with(models.bank[group], layer, kept.effects[key])
            for key, group in groups.items()
            if kept.groups.get(key) == group
        }


class SlopesClients(RandomEffectsClients):
    """Each client has its own weights and biases of the last layer.

    They hold everything between one model for all (no variance), an intercept for each client (of the biases alone)
    and each client alone (of everything, large).
    """

    name = "slopes"
    weights_differ = True


class InterceptClients(RandomEffectsClients):
    """Each client has its own biases of the last layer: one of values, the log odds of classes.

    Of a linear model the common weights are estimated together with these; of one with too many the biases alone.
    """

    name = "intercept"
    weights_differ = False


def _with(model: FloatArray, layer: Layer, effects: FloatArray) -> FloatArray:
    """Return a model (R,) with a client's effects (P,)."""
    row: FloatArray = model.copy()
    row[layer.places] += layer.basis @ effects
    return row


def _outliers(replies: Sequence[tuple[str, OwnTerms]]) -> set[str]:
    """Return the clients whose loss or derivatives, by record, are far beyond the others'.

    Slopes are compared with the root of loss times curvature: those of benign clients may all be near 0.
    """
    told = [(key, own) for key, own in replies if own.is_told]
    if len(told) < LEAST_CLIENTS:
        return set()
    counts = np.array([own.num_examples for _, own in told])
    losses = np.array([own.value for _, own in told]) / counts
    curvatures = np.array([np.diagonal(own.hessian).max() for _, own in told]) / counts
    slopes = np.array([np.abs(own.gradient).max() for _, own in told]) / counts
    loss, curvature = lower_median(losses), lower_median(curvatures)
    usual = np.array([loss, curvature, np.sqrt(loss * curvature)])
    far = (np.stack([losses, curvatures, slopes], axis=1) > UPDATE_FACTOR * usual) & (usual > 0)
    return {key for (key, _), row in zip(told, far, strict=True) if row.any()}
