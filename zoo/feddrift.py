"""FedDrift: clients whose loss rises train alone for a while, and models of one concept merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from florets import Round, Settings, State, Steps, Strategy, setting
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.outliers import without_far_losses
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import finite_losses
from florets.strategies.core.robust import RobustRule
from florets.task.wire.leaving import LOSS_VECTORS, MODELS
from florets.zoo.shared.agglomerative import group_below


@dataclass(frozen=True)
class FedDriftSettings(Settings):
    """Clients whose loss rises get models of their own, and models that do as well on each other's data merge."""

    asks: ClassVar[frozenset[str]] = frozenset({"losses", "updates"})

    period: int = setting(5, "rounds between two requests for a client's losses: a step of the paper", least=1)
    delta: float = setting(
        1.0,
        "a client whose lowest loss has risen by more than this since its last request gets its own model; in the "
        "loss's unit",
        above=0,
    )
    one_model: ClassVar[bool] = True
    """The run begins with one, and says itself how many there are; `k` is not used."""


CONCEPTS = "concepts"
"""The detail of a round that isolated clients or merged models: who, and how many."""


@dataclass
class FedDriftState(State):
    """What FedDrift remembers."""

    phase: str = "clustering"
    # The round in which each client was asked for its losses last, or was given a model of its own.
    asked: dict[str, int] = field(default_factory=dict)
    # The lowest of these losses; none of a client whose model has merged since.
    usual: dict[str, float] = field(default_factory=dict)
    # Clients in isolation: each trains a model that nobody else is offered, until it is asked the next time.
    alone: set[str] = field(default_factory=set)
    # Of each model: updates that it has been averaged from, and the last round in which somebody was to train it.
    trained: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    # The first model.
    reference: Models | None = None


class FedDrift(Strategy[FedDriftSettings, FedDriftState]):
    """Keep a model for each concept that clients' data have, over time.

    Every `period` rounds a participant is asked for its losses on all models, and takes the one with the lowest. If
    that is by more than delta above the lowest at the last question, its data have changed to something that no
    model knows: it trains a copy of the best model alone until it is asked again. Then the models that clients of
    this round have are compared: those that lose less than delta on each other's data merge (complete linkage). In a
    round in which an isolation ends all participants are asked but those that are still isolated. Models without
    clients are kept for concepts that return, as long as there are fewer models than clients; then the one that has
    rested longest is left out.

    Nobody says how many models there are, or what they start from: each client begins with a model of its own, as if
    its data had just changed. A question costs the client the download of all models.

    Source: Jothimurugesan et al. 2023 (FedDrift, arXiv 2206.00799): local drift detection, isolation for one step,
    hierarchical clustering with delta' = delta. From the released code: a start with a model for each client, a copy
    of the best model for a client in isolation, mean of models that merge weighted by the clients and steps that
    trained them, least recently used model replaced. Deviation: losses in place of accuracies, which a client's reply
    has for no model but its own; delta is therefore in the loss's unit, and its default ours. A step is `period`
    rounds of each client's own, since not all take part in all rounds. There is no data of earlier steps: models are
    compared and trained on what clients have now, those without clients not at all. After a merge there is no usual
    loss to compare with until the next question, since the mean of models loses more than each of them at first. A
    model that a client has trained alone and leaves at once, because another fits it better, is dropped.
    """

    leaving = (MODELS, LOSS_VECTORS)
    Settings = FedDriftSettings
    State = FedDriftState

    def round(self, r: Round) -> Steps:
        """Ask the clients that are due, move, isolate and merge; then every participant trains its model."""
        state, now = self.state, r.server_round
        bank, state.phase = r.models.bank, "training"
        if state.reference is None:
            state.reference, state.phase = r.models.replaced(bank[:1]), "clustering"
            bank = bank[:0]
        elif due := self._due(r):
            state.phase = "clustering"
            bank = self._ask(due, r)
        new = [client.key for client in r.newcomers(self.assignment)]
        bank = self._isolate(dict.fromkeys(new, state.reference.bank[0]), bank, now)
        bank = self._without_surplus(bank, r.models)
        if bank is not r.models.bank:
            r.models = state.reference.replaced(bank)
        for client in r.participants:
            if client.key in self.assignment:
                state.used[self.assignment[client.key]] = now
        updates = yield r.train(self.assignment)
        for _, update in updates:
            state.trained[update.model] += 1
        return r.average(updates)

    def _due(self, r: Round) -> list[Client]:
        """Return the participants that are asked: some, or where an isolation ends all but those still isolated."""
        state, now = self.state, r.server_round
        keys = {client.key for client in r.participants}
        known = keys & state.asked.keys()
        due = {key for key in known if now - state.asked[key] >= self.settings.period}
        if due & state.alone:
            # Its model can be compared with those alone whose clients are asked as well.
            due |= known - state.alone
        return [client for client in r.participants if client.key in due]

    def _ask(self, due: Sequence[Client], r: Round) -> FloatArray:
        """Let clients choose, or leave for a model of their own, and merge models; return the next bank."""
        state, now, bank = self.state, r.server_round, r.models.bank
        with r.meter.part("losses"):
            replies = without_far_losses(r.ask_losses(due, r.models), r)
        keys = [key for key, _ in replies.ok]
        closed = {self.assignment[key] for key in state.alone.difference(keys)}
        offered = np.setdiff1d(np.arange(len(bank)), sorted(closed))
        if not keys or not len(offered):
            return bank
        losses = finite_losses(np.stack([reply.losses for _, reply in replies.ok]))
        r.note_vectors("losses", keys, losses)
        weights = np.array([reply.num_examples for _, reply in replies.ok], dtype=np.float64)
        opened = {self.assignment[key] for key in state.alone.intersection(keys)}
        departed: dict[str, FloatArray] = {}
        for key, row in zip(keys, losses, strict=True):
            best = int(offered[row[offered].argmin()])
            if row[best] > state.usual.get(key, np.inf) + self.settings.delta:
                departed[key] = bank[best]
                self.assignment.pop(key)
            else:
                self.assignment[key] = best
            state.usual[key], state.asked[key] = float(row[best]), now
            state.alone.discard(key)
        stayed = [key not in departed for key in keys]
        left = np.arange(len(bank))
        # Who was alone and goes to another model leaves behind what it made of its data and no one else's.
        left[sorted(opened.difference(self.assignment.values()))] = -1
        if any(stayed):
            with r.meter.part("cluster"):
                groups = np.array([self.assignment[key] for key in keys if key not in departed], dtype=np.int64)
                left = self._merge(left, losses[stayed], groups, weights[stayed])
        bank = self._renumber(left, bank, r.models)
        return self._isolate(departed, bank, now)

    def _merge(self, left: IntArray, losses: FloatArray, groups: IntArray, weights: FloatArray) -> IntArray:
        """Return what number each model has after models of one concept merged: that of the lowest of them."""
        present = np.unique(groups)
        distances = concept_distances(losses_on_groups(losses, groups, weights, present))
        near = group_below(distances, self.settings.delta, "complete").clusters
        for cluster in np.unique(near):
            left[present[near == cluster]] = present[near == cluster][0]
        changed = {int(model) for model in present[np.bincount(near)[near] > 1]}
        for key in [key for key, model in self.assignment.items() if model in changed]:
            self.state.usual.pop(key, None)
        if changed:
            self.state.details.setdefault(CONCEPTS, {})["merged"] = len(changed)
        return left

    def _renumber(self, left: IntArray, bank: FloatArray, models: Models) -> FloatArray:
        """Return the models that are left, where models of one number merge and -1 is left out."""
        if np.array_equal(left, np.arange(len(bank))):
            return bank
        state = self.state
        kept, places = np.unique(left, return_inverse=True)
        numbers: IntArray = places - int(kept[0] < 0)
        old = range(len(kept) - int(kept[0] < 0))
        assert state.reference is not None
        bank = merged_models(bank, numbers, np.array(state.trained), state.reference, self.averaging.robust)
        members = [np.flatnonzero(numbers == number).tolist() for number in old]
        state.trained = [sum(state.trained[model] for model in of) for of in members]
        state.used = [max(state.used[model] for model in of) for of in members]
        self.assignment.update({key: int(numbers[model]) for key, model in self.assignment.items()})
        return bank

    def _isolate(self, starts: Mapping[str, FloatArray], bank: FloatArray, now: int) -> FloatArray:
        """Give each of some clients a model of its own, which starts from the given one."""
        if not starts:
            return bank
        state = self.state
        for key in starts:
            self.assignment[key] = len(state.trained)
            state.asked[key] = now
            state.alone.add(key)
            state.trained.append(0)
            state.used.append(now)
        concepts = state.details.setdefault(CONCEPTS, {})
        concepts["isolated"] = sorted([*concepts.get("isolated", []), *starts])
        return np.concatenate([bank, np.stack(list(starts.values()))])

    def _without_surplus(self, bank: FloatArray, models: Models) -> FloatArray:
        """Leave out models that have rested longest, until there are no more than clients."""
        surplus = len(bank) - len(self.assignment)
        if surplus <= 0:
            return bank
        idle = sorted(set(range(len(bank))).difference(self.assignment.values()), key=self.state.used.__getitem__)
        left = np.arange(len(bank))
        left[idle[:surplus]] = -1
        return self._renumber(left, bank, models)


def losses_on_groups(losses: FloatArray, groups: IntArray, weights: FloatArray, models: IntArray) -> FloatArray:
    """Return the loss of model i on the data of the clients of model j, (G, G), weighted by examples.

    `losses` (P, K) are of all models on the clients' data, `groups` (P,) the clients' models, `models` (G,) those
    that have clients.
    """
    clean = finite_losses(losses)[:, models]
    return np.stack(
        [np.average(clean[groups == model], axis=0, weights=weights[groups == model]) for model in models]
    ).T


def concept_distances(losses: FloatArray) -> FloatArray:
    """Return how much more two models lose on each other's data than on their own, the larger of both, at least 0.

    `losses` (G, G) are from `losses_on_groups`.

    Source: Jothimurugesan et al. 2023 (FedDrift), the clusters' distance; in losses, where the released code takes
    accuracies.
    """
    rise = losses - np.diag(losses)[:, np.newaxis]
    distances: FloatArray = np.maximum(np.maximum(rise, rise.T), 0.0)
    return distances


def merged_models(
    bank: FloatArray, heirs: IntArray, trained: IntArray, start: Models, rule: RobustRule | None = None
) -> FloatArray:
    """Return the models (K', R) that are left after some merged; one that did not merge keeps its bits.

    `heirs` (K,) are the new numbers, -1 for a model that is left out; `trained` (K,) counts the clients that have
    trained each, over all rounds: the weights of the mean, at least 1. Of counters the largest is kept. A `rule` for
    the models' changes from the first one, `start`, takes the mean's place.
    """
    count = int(heirs.max(initial=-1)) + 1
    _, first = np.unique(heirs[heirs >= 0], return_index=True)
    result = bank[np.flatnonzero(heirs >= 0)[first]]
    together = (heirs >= 0) & (np.bincount(heirs[heirs >= 0], minlength=count)[heirs] > 1)
    weights = np.maximum(trained[together], 1).astype(np.float64)
    groups = heirs[together]
    starts = start.replaced(np.repeat(start.bank, count, axis=0))
    result[groups] = ModelAveraging(robust=rule).next_bank(starts, bank[together], groups, weights)[groups]
    return result
