"""A round of discovery: clients train on folds, the server looks for groups, and the evidence says what it found."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.strategies.base.groups import FoldTraining, Frozen
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import centred_rows
from florets.strategies.core.folds import Groups, difference_p_value, discover
from florets.strategies.core.placement import Centres, centres
from florets.strategies.core.sharpness import is_sharp
from florets.strategies.shared.fold_evidence import STABLE, Evidence
from florets.strategies.shared.fold_plan import FoldPlan
from florets.strategies.shared.messages import QUERY_FOLDS, TRAIN_FOLDS, FoldRows, FoldUpdate
from florets.task.randomness import Purpose
from florets.task.settings import left_after
from florets.task.training.settings import Training
from florets.task.wire import codec, kinds
from florets.task.wire.folds import LEARNING_RATE, MOST_ESTIMATED, RowForm
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True)
class Found:
    """What a discovery found; `count` models are to be trained, and `centres` is None where there is one group."""

    count: int
    assignment: dict[str, int]
    centres: Centres | None
    evidence: Evidence


@dataclass
class FoldRound:
    """Rows of the clients that have trained the common model on folds of their data."""

    common: Models
    plan: FoldPlan
    form: RowForm
    seed: int  # Draws what a compressed row holds
    held_out: bool = False  # Some samples are kept for losses, and not trained on
    place_one_class: bool = False  # Clients of one class send one row and are placed afterwards
    estimates: bool = False  # Rows hold a linear model's exact estimates as well
    rows: dict[str, NDArray[np.floating]] = field(default_factory=dict)  # By client, (m, width)
    # One row each: too few samples, or too few that differ, or of one class
    small: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    # Samples of each fold of clients whose folds are smaller than the others'
    short: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, r: Round, fine: bool = False, place_one_class: bool = False, tests: bool = True) -> "FoldRound":
        """Fix the common model and the folds, by the samples of all who are online; see `FoldPlan.of`."""
        held_out = r.config.get(kinds.LOSS_DATA) == kinds.HELD_OUT
        counts = [_samples(client, held_out) for client in r.online]
        estimates = sends_estimates(r)
        plan = FoldPlan.of(counts, fine and not estimates, tests, Training.received(r.config))
        size = int(r.models.layout.trained.sum()) * (2 if estimates else 1)
        form = RowForm.of(None, size, plan.folds)
        return cls(first_model(r), plan, form, r.seed, held_out, place_one_class, estimates)

    def __contains__(self, key: str) -> bool:
        return key in self.rows or key in self.small

    def emptied(self) -> "FoldRound":
        """Return it without the rows: what newcomers need."""
        return replace(self, rows={}, small={}, short={})

    def size_of(self, client: Client) -> int:
        """Return the samples of each of a client's folds, see `FoldPlan.size_of`."""
        return self.plan.size_of(_samples(client, self.held_out))

    def sure_size_of(self, client: Client) -> int:
        """Return the samples of each fold of a newcomer; 0: its folds are too small to say that no group fits."""
        size = self.size_of(client)
        return size if 2 * size >= self.plan.size else 0

    def train(self, r: Round) -> Plan[Update]:
        """Plan the exchange in which all train the bank's first model; those without rows the common one on folds."""
        layout, model = r.models.layout, r.models.one(0)
        others = None if r.models.bank[:1].tobytes() == self.common.bank.tobytes() else self.common.one(0)
        extra = {} if others is None else {kinds.COMMON: others}
        new = {client.key: self.size_of(client) for client in r.participants if client.key not in self}
        self.short |= {key: size for key, size in new.items() if 0 < size < self.plan.size}
        requests = []
        for client in r.participants:
            if client.key in new:
                settings = {**r.averaging.settings, **self._settings(new[client.key])}
                requests.append(r.request_custom(TRAIN_FOLDS, client, model, settings, extra))
            else:
                requests.append(r.request(kinds.TRAIN, client, model, r.averaging.settings))

        def read(key: str, content: RecordDict) -> Update:
            if key not in new:
                return read_update(content, layout, 0)
            sizes = {"layout": layout, "model": 0, "form": self.form, "folds": self._folds(new[key])}
            return codec.read(FoldUpdate, content, **sizes)

        return Plan(requests, read)

    def take(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Keep the rows that came."""
        # As exact as they were sent, in half of the memory and of the checkpoint.
        kept = np.float32 if self.form.is_whole else np.float16
        for key, reply in updates:
            # Nobody knows where a client belongs that has learned nothing; its update counts all the same.
            if isinstance(reply, FoldUpdate) and len(reply.rows) > 0:
                (self.small if len(reply.rows) == 1 else self.rows)[key] = reply.rows.astype(kept)

    def decide(self, k: int | None, r: Round, level: float = 0.005) -> Found:
        """Say whether the clients fall into groups, how many (k; None: to be found) and which; place the others."""
        keys = sorted(self.rows)
        if len(keys) < 2:
            everybody = dict.fromkeys([*keys, *sorted(self.small)], 0)
            return Found(1, everybody, None, Evidence("too_few", seen=len(keys), needed=2))
        folds = np.stack([self.rows[key] for key in keys]).astype(np.float64)
        r.note_vectors("updates", keys, folds.mean(axis=1))
        rng = r.random(Purpose.FOLD_TEST)
        classes = np.array([self.plan.class_of(self.short.get(key, self.plan.size)) for key in keys])
        wanted = None if k is None else min(k, len(keys))
        groups = discover(folds, wanted, level=level, rng=rng, classes=classes)
        evidence = Evidence.of(groups, keys, k is not None, level)
        if k is None and self.estimates:
            evidence = self._with_difference(evidence, folds, classes, level, rng)
        if k is None and groups.verdict == "groups":
            evidence = replace(evidence, sharp=_are_sharp(folds, groups, classes == 0, rng))
        if groups.verdict != "groups":
            return Found(1, dict.fromkeys(sorted({*keys, *self.small}), 0), None, evidence)
        found = dict(zip(keys, groups.labels.tolist(), strict=True))
        directions = centres(folds, groups.labels)
        frozen = self.frozen(directions)
        found |= {key: frozen.place_rows(row, in_run=True)[0] for key, row in sorted(self.small.items())}
        return Found(len(directions.directions), found, directions, replace(evidence, small=len(self.small)))

    def _with_difference(
        self, evidence: Evidence, folds: FloatArray, classes: IntArray, level: float, rng: np.random.Generator
    ) -> Evidence:
        """Say in what clients of a linear model differ, unless rows were compressed, or there are no levels."""
        layout = self.common.layout
        levels = layout.entries[-1].size if len(layout.entries) > 1 else 0
        if not self.form.is_whole or not 0 < levels < layout.size or evidence.p_value is None:
            return evidence
        own, tested = folds[:, :, layout.size :], classes >= 0
        p_levels, p_coefficients = (
            difference_p_value(part[tested], level, rng, classes[tested])
            for part in (own[:, :, -levels:], own[:, :, :-levels])
        )
        return replace(evidence, p_levels=round(p_levels, 6), p_coefficients=round(p_coefficients, 6))

    def place(self, clients: Sequence[Client], groups: Centres, r: Round) -> tuple[dict[str, int], set[str]]:
        """Return the group of each of these clients, as far as its rows arrive, and those that no group fits."""
        sizes = {client.key: self.sure_size_of(client) for client in clients}
        common = self.common.one(0)
        requests = [
            r.request_custom(QUERY_FOLDS, client, common, self._settings(sizes[client.key]), category="query")
            for client in clients
        ]
        replies = r.ask(
            requests,
            lambda key, content: codec.read(FoldRows, content, form=self.form, folds=self._folds(sizes[key])),
        )
        frozen = self.frozen(groups)
        found = {
            key: frozen.place_rows(reply.rows, in_run=True)[0] if len(reply.rows) else -1 for key, reply in replies.ok
        }
        unfit = {key for key, group in found.items() if group < 0}
        return {key: group for key, group in found.items() if key not in unfit}, unfit

    def frozen(self, groups: Centres) -> Frozen:
        """Return what a new client is assigned by."""
        plan = self.plan
        training = FoldTraining(plan.folds, plan.size, plan.steps, plan.rate, self.form, self.estimates)
        placing = Frozen("folds", groups.directions, self.common, origin=groups.origin, scale=groups.usual)
        return replace(placing, seed=self.seed, training=training)

    def _folds(self, size: int) -> int:
        return self.plan.folds if size > 0 else 1

    def _settings(self, size: int) -> dict[str, str | float]:
        rate = self.plan.rate if self.plan.rate != LEARNING_RATE else 0
        further = {
            kinds.FOLD_RATE: rate,
            kinds.FOLD_CLASSES: self.place_one_class,
            kinds.FOLD_ESTIMATES: self.estimates,
        }
        return {
            # Only what is not usual: every message costs its bytes.
            **{name: value for name, value in further.items() if value},
            kinds.NUM_FOLDS: self._folds(size),
            kinds.FOLD_SIZE: size or self.plan.size,
            kinds.FOLD_STEPS: self.plan.steps,
            kinds.FOLD_WIDTH: self.form.width,
            kinds.FOLD_SEED: self.seed,
        }


def first_model(r: Round) -> Models:
    """Return the first of a round's models."""
    return r.models if r.models.count == 1 else r.models.replaced(r.models.bank[:1])


def _are_sharp(folds: FloatArray, groups: Groups, tested: BoolArray, rng: np.random.Generator) -> bool:
    """Say whether the groups found are sharp, by the clients that were searched and whose folds are large."""
    among = np.flatnonzero(tested) if groups.sample is None else groups.sample[tested[groups.sample]]
    labels = canonical(groups.labels[among])
    if not labels.any():
        return True
    by_chance = groups.stability is not None and groups.stability < STABLE
    return not by_chance and is_sharp(centred_rows(folds[among]), labels, rng)


def sends_estimates(r: Round) -> bool:
    """Return whether rows hold exact estimates: of Newton's steps on what has a linear model's shapes."""
    shapes = [entry.shape for entry in r.models.layout.entries]
    looks = len(shapes[0]) == 2 and shapes[1:] in ([], [shapes[0][:1]])
    training = Training.received(r.config)
    return looks and training.solver == "newton" and r.models.layout.size <= MOST_ESTIMATED


def _samples(client: Client, held_out: bool) -> int:
    """Return how many samples a client trains on, of those that it introduced itself with."""
    return left_after(client.num_examples) if held_out else client.num_examples
