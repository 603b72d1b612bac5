"""FedPAC: a shared body, and for each client a head combined from those of clients with similar features."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from florets import Objective, Round, State, Steps, setting
from florets.client_app.client import Client
from florets.client_app.training import packed, trained
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.round import Tests
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.outliers import lower_median
from florets.strategies.core.robust import MOST_WEIGHT, RobustRule
from florets.strategies.shared.estimates import last_layer
from florets.strategies.shared.personal_models import PersonalModels, number_clients, with_common
from florets.task.layers import body_and_head
from florets.task.randomness import Purpose
from florets.task.training.features import NearPrototypes, head_inputs
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import LABELS, MODELS, MOMENTS, PROTOTYPES
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
    robust_means,
)

TRAIN_SPLIT = "florets.zoo.fedpac:train_split"

LEAST_WEIGHT = 0.001
"""Weights of other clients' heads below this are set to 0."""
_LEAST_SPREAD = 1e-12
"""Of clients whose statistics have no spread at all: equal ones then get equal weights."""


@dataclass(frozen=True)
class FedPACSettings(PrototypeSettings):
    """One body for all, and for each client a head that is combined from those of clients with similar features."""

    head_rate: float = setting(10.0, "factor on the learning rate for the head's epochs", above=0)

    purpose: ClassVar[str] = "FedPAC compares mean features of classes"


@dataclass
class FedPACState(State):
    """The clients' heads; `assignment` numbers them from 1, in the order in which the clients were first seen."""

    # Combined head of each client that has taken part, flat.
    heads: PersonalModels = field(default_factory=PersonalModels)
    # Mean features (P, D) of the classes seen, and these classes (P,).
    prototypes: FloatArray | None = None
    classes: IntArray | None = None


@dataclass(frozen=True, kw_only=True)
class SplitUpdate(PrototypeUpdate):
    """Reply to `TRAIN_SPLIT`: prototypes after training, and statistics of the features before it.

    `shares` (P, D) are the mean feature of each class that the client has times the class's share of the samples,
    `spread` is the variance of the estimate of all of them together.
    """

    shares: Annotated[NDArray[np.float32], codec.Tensor("P", "D", name="statistics", record="statistics")]
    spread: Annotated[float, codec.Number(least=0)]

    @property
    def statistics(self) -> FloatArray:
        """The shares by class (C, D), 0 of classes that the client does not have."""
        return self._by_class(self.shares)

    @property
    def others(self) -> NDArray[np.floating]:
        """The prototypes and the statistics, which the server uses as well."""
        return np.concatenate([self.rows, self.shares])


class FedPAC(WithPrototypes[FedPACSettings, FedPACState]):
    """Average one body, and combine for each participant a head of its own from all participants' heads.

    Personal is the head, U entries, kept by the server, 4 U bytes for each client that has taken part; who has not
    uses the mean of the heads. A round sends a model and up to C prototypes of D entries down, a model and twice the
    prototypes up. Locally it takes an epoch on the head alone, FedAvg's training of the body with the head frozen,
    and two forward passes; the server solves a least-squares problem of m unknowns for each of m participants. At the
    end model 0 is the body with the mean head, and the others are the clients'.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867): feature alignment and classifier combination, with lambda 1 and
    one epoch of the head at ten times the body's rate. Deviation: tests are of the combined model, before local
    training; the run's optimiser takes the place of SGD; classes that no participant of a round has keep their
    prototype.
    """

    leaving = (MODELS, PROTOTYPES, LABELS, MOMENTS)
    Settings = FedPACSettings
    State = FedPACState

    def check(self, models: Models) -> None:
        """Refuse a model without a body, too."""
        super().check(models)
        if self._mask(models).all():
            raise ValueError("FedPAC: the model is all head; use one with a layer before it, such as a larger MLP.")

    def round(self, r: Round) -> Steps:
        """Let every participant train its head, then the body near the prototypes; combine heads afterwards."""
        number_clients(self.assignment, r.online, first=1)
        state, models = self.state, r.models
        others: dict[str, ArrayRecord] = {}
        if state.prototypes is not None and state.classes is not None:
            others[kinds.PROTOTYPES] = pack_prototypes(state.prototypes, state.classes)
        rate = {kinds.HEAD_RATE: self.settings.head_rate}
        updates = yield self.train_near(
            TRAIN_SPLIT, SplitUpdate, lambda key: self._model(key, models), others, r, **rate
        )
        found = [(key, cast(SplitUpdate, update)) for key, update in updates]
        vectors = np.stack([update.vector for _, update in found])
        self._learn(found, vectors[:, self._mask(models)])
        rows = Updates(updates)
        return r.averaging.next_bank(models, rows, rows.models * 0, rows.examples)

    def _learn(self, updates: Sequence[tuple[str, SplitUpdate]], heads: FloatArray) -> None:
        """Combine the participants' heads (m, U), and renew the prototypes of the classes that they have."""
        state, rule = self.state, self.averaging.robust
        statistics = np.stack([update.statistics.ravel() for _, update in updates])
        samples = np.array([update.num_examples for _, update in updates])
        spreads = known_spreads(np.array([update.spread for _, update in updates]), samples)
        combined = combined_heads(statistics, spreads, heads, LEAST_WEIGHT, rule)
        for (key, _), head in zip(updates, combined, strict=True):
            state.heads[key] = head.astype(np.float32).astype(np.float64)
        prototypes, classes = global_prototypes(
            [update.prototypes for _, update in updates], [update.counts for _, update in updates], rule
        )
        if state.prototypes is not None and state.classes is not None:
            old = ~np.isin(state.classes, classes)
            prototypes = np.concatenate([prototypes, state.prototypes[old]])
            classes = np.concatenate([classes, state.classes[old]])
        state.prototypes, state.classes = prototypes, classes

    def test(self, r: Round) -> Tests:
        """Let every tester test the body with its own head, or the mean head where it has none yet."""
        testers = {client.key for client in r.testers} & self.assignment.keys()
        return r.test({key: self._model(key, r.models) for key in testers})

    def final_models(self, models: Models) -> Models:
        """Return the body with the mean head, and behind it with each client's, in the order of their numbers."""
        return with_common(models, {key: self._row(key, models) for key in self.assignment}, self.assignment)

    def _mask(self, models: Models) -> BoolArray:
        """Return the mask (R,) of the head."""
        return models.layout.mask([last_layer(models)])

    def _row(self, key: str, models: Models) -> FloatArray:
        """Return the global body with a client's head (R,)."""
        row: FloatArray = models.bank[0].copy()
        if key in self.state.heads:
            row[self._mask(models)] = self.state.heads[key]
        return row

    def _model(self, key: str, models: Models) -> ArrayRecord:
        """Return the global body with a client's head as a record."""
        if key not in self.state.heads:
            return models.one(0)
        return models.replaced(self._row(key, models)[np.newaxis]).one(0)


def known_spreads(spreads: FloatArray, counts: IntArray) -> FloatArray:
    """Return the spreads (m,) of the statistics of clients with counts (m,) samples, where one sample shows none.

    A client with one sample gets n_j v_j, the spread of one sample, as the mean over the clients with more of them.
    Deviation: the formula gives it 0, as if it knew its own head to be right, and it would learn from nobody.
    """
    several = counts > 1
    if several.all() or not several.any():
        return spreads
    return np.where(several, spreads, np.mean(counts[several] * spreads[several]))


def head_weights(statistics: FloatArray, spreads: FloatArray, drop: float = 0.0) -> FloatArray:
    """Return the weights (m, m): row i combines the heads of m clients into that of client i.

    Row i is the minimum over the simplex of sum_j a_j^2 v_j + |sum_j a_j (h_i - h_j)|^2: variance of the combined
    estimate, and its bias for client i.

    `statistics` (m, S) are h_i, mean features of each class times the class's share, flat; `spreads` (m,) are v_i, at
    least 0. Weights below `drop` are set to 0; the others are scaled to a sum of 1.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the combination of classifiers. Solved as non-negative least
    squares: with a penalty of (sum_j a_j - 1)^2 in place of the condition on the sum only the scale changes.
    """
    from scipy.optimize import nnls  # the server's half alone needs it

    roots = np.diag(np.sqrt(np.maximum(spreads, _LEAST_SPREAD)))
    ones = np.ones((1, len(spreads)))
    found = np.empty((len(spreads), len(spreads)))
    for row, own in enumerate(statistics):
        system = np.concatenate([roots, (own - statistics).T, ones])
        target = np.zeros(len(system))
        target[-1] = 1.0
        weights = nnls(system, target)[0]
        weights /= weights.sum()
        # The largest weight stays whatever is dropped, and those that differ from it by rounding alone.
        weights[weights < min(drop, weights.max() * (1 - 1e-9))] = 0.0
        found[row] = weights / weights.sum()
    return found


def combined_heads(
    statistics: FloatArray, spreads: FloatArray, heads: FloatArray, drop: float, rule: RobustRule | None
) -> FloatArray:
    """Return each client's head (m, U), combined from the heads (m, U), by a rule from those with a weight for it."""
    if rule is None:
        return head_weights(statistics, spreads, drop) @ heads
    # Who claims to know its head exactly would have all the weight, and no rule would apply.
    weights = head_weights(statistics, np.maximum(spreads, lower_median(spreads) / MOST_WEIGHT), drop)
    # Some rules count all members alike: those with little weight would have as much say as the client itself. Half
    # of the weight of a median client is enough, also next to one that claims most.
    owners, members = np.nonzero(weights >= weights.max(axis=1, keepdims=True) / (2 * MOST_WEIGHT))
    return robust_means(heads[members], owners, weights[owners, members], len(heads), rule)


def train_split(client: Client) -> RecordDict:
    """Return the trained model, the prototypes of its classes, and the statistics of the features that came.

    In round 1 there are no global prototypes, and the body is trained on the plain loss.

    Source: Xu et al. 2023 (FedPAC): the clients' part; round 1 as in the released code.
    """
    labels, classes = class_labels(client), client.task.num_outputs
    body, head = body_and_head(client.module, client.names(kinds.HEAD))
    start = client.states()[0]
    before = own_features(client, start, head)
    statistics, spread = shares_and_spread(before, labels, classes)
    rate = client.training.learning_rate * client.number(kinds.HEAD_RATE)
    epoch = replace(client.training, learning_rate=rate, local_epochs=1.0, local_steps=None)
    arrays, _ = trained(client, start, Purpose.HEAD_TRAINING, objective=Objective(frozen=body), training=epoch)
    middle = copied(arrays)
    factor = client.number(kinds.PROTOTYPE_LAMBDA)
    with head_inputs(client.module, head) as found:
        terms: tuple[NearPrototypes, ...] = ()
        if factor and kinds.PROTOTYPES in client.content:
            terms = (NearPrototypes(factor, *_prototypes(client, before, labels), classes, found),)
        arrays, loss = trained(client, middle, objective=Objective(terms, frozen=head))
        found.clear()
    model = packed(arrays)
    means, counts = class_means(own_features(client, copied(arrays), head), labels, classes)
    return codec.pack(
        SplitUpdate,
        values=model,
        train_loss=loss,
        num_examples=client.num_examples,
        counts=counts,
        rows=means,
        shares=statistics,
        spread=spread,
    )


def _prototypes(client: Client, before: FloatArray, labels: IntArray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the prototypes to be near, and their classes: global ones, and the client's own where there are none."""
    means, counts = class_means(before, labels, client.task.num_outputs)
    prototypes, classes = torch.from_numpy(means), torch.from_numpy(np.flatnonzero(counts))
    sent = client.states(kinds.PROTOTYPES)[0]
    lone = ~torch.isin(classes, sent[kinds.CLASSES])
    device = client.data.x_train.device
    return (
        torch.cat([prototypes[lone], sent[kinds.PROTOTYPES]]).to(device),
        torch.cat([classes[lone], sent[kinds.CLASSES]]).to(device),
    )


def shares_and_spread(rows: FloatArray, labels: IntArray, num_classes: int) -> tuple[NDArray[np.float32], float]:
    """Return each class's mean feature times its share of the samples, (P, D), and the spread of their estimate.

    The spread is (mean |f|^2 - sum_c |h_c|^2) / n, with f the features (n, D) and h_c the means, and never below 0.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the statistics of the combination of classifiers.
    """
    counts = np.bincount(labels, minlength=num_classes)
    shares = np.stack([rows[labels == label].sum(axis=0) / len(labels) for label in np.flatnonzero(counts)])
    spread = (np.mean(np.sum(rows**2, axis=1)) - np.sum(shares**2)) / len(labels)
    return shares.astype(np.float32), max(float(spread), 0.0)
