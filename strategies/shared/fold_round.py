"""A round of discovery: clients train on folds, the server looks for groups, and the evidence says what it found."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.base.placement import FoldTraining, Frozen
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.accountant import epsilon_of
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import centred_rows
from florets.strategies.core.folds import Groups, difference_p_value, discover, permutations_at
from florets.strategies.core.noised_groups import Release, noised_groups
from florets.strategies.core.placement import Centres, centres
from florets.strategies.core.subgroups import Node, spread, tree_of
from florets.strategies.shared.fold_evidence import STABLE, Evidence, plain
from florets.strategies.shared.fold_plan import (
    NOISED_FOLDS,
    NOISED_SIZE,
    NOISED_STEPS,
    NOISED_WIDTH,
    OWN_NOISE_WIDTH,
    FoldPlan,
)
from florets.strategies.shared.messages import QUERY_FOLDS, TRAIN_FOLDS, FoldRows, FoldUpdate
from florets.task.randomness import Purpose
from florets.task.settings import left_after
from florets.task.training.settings import Training
from florets.task.wire import codec, kinds, noise
from florets.task.wire.folds import LEARNING_RATE, MOST_ESTIMATED, RowForm
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True)
class Found:
    """What a discovery found: the number of models, the clients' groups, and how newcomers are placed.

    Attributes
    ----------
    count
        Groups to train a model for: 1 where there are none, or every client differs.
    assignment
        Group of each client that has one, by key.
    centres
        None where there is one group.
    """

    count: int
    assignment: dict[str, int]
    centres: Centres | None
    evidence: Evidence


@dataclass
class FoldRound:
    """Rows of the clients that have trained the common model on folds of their data.

    Attributes
    ----------
    common
        The model that all rows come from.
    plan, form
        Folds and steps, and how rows are sent; the same for all clients.
    seed
        Draws what a compressed row holds.
    held_out
        Clients keep some of their samples for losses, and train on the others alone.
    place_one_class
        Clients whose records are all of one class send one row and are placed afterwards.
    rows
        By client, (m, width).
    short
        Samples of each fold of clients whose folds are smaller than the others'.
    alike
        Clients with near-duplicates among their records.
    noised
        Rows are for sums with noise, or hold noise: folds are the same for all clients.
    estimates
        Rows hold a linear model's exact estimates in addition to what steps on the folds change.
    small
        Of clients with too few samples for folds, or too few that differ, or that learned nothing on some fold, and
        of those with one class where `place_one_class` is set: one row, (1, width).
    """

    common: Models
    plan: FoldPlan
    form: RowForm
    seed: int
    held_out: bool = False
    place_one_class: bool = False
    rows: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    small: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)
    noised: bool = False
    estimates: bool = False

    @classmethod
    def begin(
        cls,
        r: Round,
        fine: bool = False,
        place_one_class: bool = False,
        tests: bool = True,
    ) -> "FoldRound":
        """Fix the common model, the first of the round's, and the folds, by the samples of all who are online.

        With noise folds are of `NOISED_SIZE` samples and depend on no client's data. `tests`: whether there are
        groups is to be found; see `FoldPlan.of`.
        """
        if r.privacy is not None:
            default = OWN_NOISE_WIDTH if r.privacy.is_local else NOISED_WIDTH
            models = r.models
            form = RowForm.of(default, int(models.layout.trained.sum()), NOISED_FOLDS)
            common = models if models.count == 1 else models.replaced(models.bank[:1])
            return cls(common, FoldPlan(NOISED_FOLDS, NOISED_SIZE, NOISED_STEPS), form, r.seed, noised=True)
        held_out = r.config.get(kinds.LOSS_DATA) == kinds.HELD_OUT
        counts = [_samples(client, held_out) for client in r.online]
        estimates, models = sends_estimates(r), r.models
        plan = FoldPlan.of(counts, fine and not estimates, tests, Training.received(r.config))
        common = models if models.count == 1 else models.replaced(models.bank[:1])
        size = int(models.layout.trained.sum()) * (2 if estimates else 1)
        form = RowForm.of(None, size, plan.folds)
        return cls(common, plan, form, r.seed, held_out, place_one_class, estimates=estimates)

    def __contains__(self, key: str) -> bool:
        return key in self.rows or key in self.small

    def emptied(self) -> "FoldRound":
        """Return it without the rows: what newcomers need."""
        kept = (self.common, self.plan, self.form, self.seed, self.held_out, self.place_one_class)
        return FoldRound(*kept, noised=self.noised, estimates=self.estimates)

    def size_of(self, client: Client) -> int:
        """Return the samples of each of a client's folds, see `FoldPlan.size_of`."""
        if self.noised:
            return self.plan.size
        return self.plan.size_of(_samples(client, self.held_out))

    def sure_size_of(self, client: Client) -> int:
        """Return the samples of each fold of a newcomer; 0: one row of all its data, for the nearest group.

        Much smaller folds than the others' are too noisy to say that no group fits.
        """
        size = self.size_of(client)
        return size if 2 * size >= self.plan.size else 0

    def _sizes(self, clients: Sequence[Client]) -> dict[str, int]:
        """Return the samples of each client's folds, and note whose are smaller than the others'."""
        sizes = {client.key: self.size_of(client) for client in clients}
        self.short |= {key: size for key, size in sizes.items() if 0 < size < self.plan.size}
        return sizes

    def train(self, r: Round) -> Plan[Update]:
        """Plan the exchange in which every participant trains the bank's first model.

        Those without rows train the common model on their folds as well.
        """
        layout, model = r.models.layout, r.models.one(0)
        others = None if r.models.bank[:1].tobytes() == self.common.bank.tobytes() else self.common.one(0)
        extra = {} if others is None else {kinds.COMMON: others}
        new = self._sizes([client for client in r.participants if client.key not in self])
        if r.privacy is not None:
            r.privacy.charge_grouping(list(new))
        requests = []
        for client in r.participants:
            if client.key in new:
                settings = {**r.averaging.settings, **self._settings(new[client.key])}
                requests.append(r.request_custom(TRAIN_FOLDS, client, model, settings, extra))
            else:
                requests.append(r.request(kinds.TRAIN, client, model, r.averaging.settings))

        def read(key: str, content: RecordDict) -> Update:
            if key in new:
                return codec.read(
                    FoldUpdate, content, layout=layout, model=0, form=self.form, folds=self._folds(new[key])
                )
            return read_update(content, layout, 0)

        return Plan(requests, read)

    def take(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Keep the rows that came."""
        for key, reply in updates:
            if self.noised and isinstance(reply, FoldUpdate):
                whole = len(reply.rows) == self.plan.folds
                rows = reply.rows if whole else noise.noised_rows(reply.rows, self.plan.folds, 0.0)
                self.rows[key] = rows.astype(np.float32)
                continue
            # Nobody knows where a client belongs that has learned nothing; its update counts all the same.
            if isinstance(reply, FoldUpdate) and len(reply.rows) > 0:
                self.alike |= {key} if reply.near_duplicates else set()
                # As exact as they were sent, in half of the memory and of the checkpoint.
                kept = np.float32 if self.form.is_whole else np.float16
                (self.small if len(reply.rows) == 1 else self.rows)[key] = reply.rows.astype(kept)

    def decide(self, k: int | None, r: Round, level: float = 0.005, subgroups: bool = False) -> Found:
        """Say whether the clients fall into groups, how many (k; None: to be found) and which; then place the others.

        See `core.folds.discover` for `level`; the others are clients with too few samples. With `subgroups` the
        groups are the leaves of the tree of groups within groups, where there is one.
        """
        keys = sorted(self.rows)
        if self.noised and r.privacy is not None and keys:
            return self._decide_noised(r.privacy, keys, k, r, level)
        if len(keys) < 2:
            everybody = dict.fromkeys([*keys, *sorted(self.small)], 0)
            return Found(1, everybody, None, Evidence("too_few", seen=len(keys), needed=2))
        folds = np.stack([self.rows[key] for key in keys]).astype(np.float64)
        r.note_vectors("updates", keys, folds.mean(axis=1))
        wanted = None if k is None else min(k, len(keys))
        rng = r.random(Purpose.FOLD_TEST)
        permutations = permutations_at(level)
        tested = np.array([key not in self.short for key in keys])
        classes = np.array([self.plan.class_of(self.short.get(key, self.plan.size)) for key in keys])
        groups = discover(
            folds,
            wanted,
            level=level,
            permutations=permutations,
            rng=rng,
            tested=tested,
            classes=classes,
        )
        evidence = replace(Evidence.of(groups, keys, k is not None, level), near_duplicates=len(self.alike))
        if k is None and self.estimates:
            evidence = self._with_difference(evidence, folds, classes, permutations, rng)
        labels = groups.labels
        if k is None and groups.verdict == "groups":
            sharp, tree = self._structure(folds, groups, tested, level, rng)
            evidence = replace(evidence, sharp=sharp)
            if tree is not None and subgroups:
                labels = tree.labels(len(keys))
                evidence = replace(evidence, tree=plain(tree, keys, labels), leaves=len(tree.leaves))
            elif tree is not None:
                evidence = replace(evidence, tree=plain(tree, keys))
        if groups.verdict != "groups":
            return Found(1, dict.fromkeys(sorted({*keys, *self.small}), 0), None, evidence)
        found = dict(zip(keys, labels.tolist(), strict=True))
        directions = centres(folds, labels)
        frozen = self.frozen(directions)
        found |= {key: frozen.place_rows(row, in_run=True)[0] for key, row in sorted(self.small.items())}
        evidence = replace(evidence, small=len(self.small))
        return Found(len(directions.directions), found, directions, evidence)

    def _with_difference(
        self, evidence: Evidence, folds: FloatArray, classes: IntArray, permutations: int, rng: np.random.Generator
    ) -> Evidence:
        """Say in what clients of a linear model differ, unless rows were compressed, or there are no levels."""
        layout = self.common.layout
        levels = layout.entries[-1].size if len(layout.entries) > 1 else 0
        if not self.form.is_whole or not 0 < levels < layout.size or evidence.p_value is None:
            return evidence
        own, tested = folds[:, :, layout.size :], classes >= 0
        p_levels, p_coefficients = (
            difference_p_value(part[tested], permutations, rng, classes[tested])
            for part in (own[:, :, -levels:], own[:, :, :-levels])
        )
        return replace(evidence, p_levels=round(p_levels, 6), p_coefficients=round(p_coefficients, 6))

    def _decide_noised(self, ledger: Any, keys: Sequence[str], k: int | None, r: Round, level: float) -> Found:
        """Do as `decide` from noised sums over the clients, or from rows that they noised; see `core.noised_groups`.

        Which group a client joins then depends on its own rows and on what was released, and the server alone knows
        it (`privacy.kind=central`), or on what the client sent (`local`).
        """
        rows = np.stack([self.rows[key] for key in keys]).astype(np.float64)
        part = ledger.budget.grouping
        release = None
        if not ledger.is_local:

            def add(total: FloatArray, norm: float, parts: int) -> FloatArray:
                noised: FloatArray = ledger.noised_sum(keys, total, norm, parts)
                return noised

            release = Release(add, ledger.grouping_noise)
        found = noised_groups(rows, k, level, r.random(Purpose.FOLD_TEST), release)
        spent = part if ledger.is_local else part * found.parts
        has_groups = found.k > 1
        sizes = tuple(sorted(np.bincount(found.labels, minlength=found.k).tolist(), reverse=True))
        evidence = Evidence(
            "groups" if has_groups else "none",
            found.k,
            sizes,
            given=k is not None,
            p_value=found.p_value,
            seen=len(keys),
            needed=len(keys),
            # Noise that leaves a group empty leaves nothing to estimate either.
            error=found.error if has_groups and all(sizes) else None,
            epsilon=epsilon_of(math.sqrt(spent), ledger.budget.delta),
        )
        directions = Centres(found.origin, found.directions, np.zeros(found.k)) if has_groups else None
        return Found(found.k, dict(zip(keys, found.labels.tolist(), strict=True)), directions, evidence)

    def _structure(
        self,
        folds: FloatArray,
        groups: Groups,
        tested: NDArray[np.bool_],
        level: float,
        rng: np.random.Generator,
    ) -> tuple[bool, Node | None]:
        """Return whether the groups found are sharp, and the tree of groups within groups; None: one level."""
        among = np.flatnonzero(tested) if groups.sample is None else groups.sample[tested[groups.sample]]
        labels = canonical(groups.labels[among])
        if not labels.any():
            return True, None
        by_chance = groups.stability is not None and groups.stability < STABLE
        if by_chance or not spread(centred_rows(folds[among]), labels, rng).is_sharp:
            return False, None
        # Of more clients than are searched the others have no place in a tree.
        if groups.sample is not None:
            return True, None
        tree = tree_of(folds, groups.labels, groups.p_value, level, rng, tested)
        return True, tree if tree.depth > 1 else None

    def place(self, clients: Sequence[Client], groups: Centres, r: Round) -> tuple[dict[str, int], set[str]]:
        """Return the group of each of these clients, as far as its rows arrive, and those that no group fits."""
        if r.privacy is not None:
            r.privacy.charge_grouping([client.key for client in clients])
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
        placed: dict[str, int] = {}
        unfit: set[str] = set()
        frozen = self.frozen(groups)
        for key, reply in replies.ok:
            group = frozen.place_rows(reply.rows, in_run=True)[0] if len(reply.rows) else -1
            if group < 0:
                unfit.add(key)
            else:
                placed[key] = group
        return placed, unfit

    def frozen(self, groups: Centres) -> Frozen:
        """Return what a new client is assigned by."""
        plan = self.plan
        training = FoldTraining(plan.folds, plan.size, plan.steps, plan.rate, self.form, self.estimates)
        placing = Frozen("folds", groups.directions, self.common, origin=groups.origin, scale=groups.usual)
        return replace(placing, seed=self.seed, training=training)

    def _folds(self, size: int) -> int:
        return self.plan.folds if size > 0 else 1

    def _settings(self, size: int) -> dict[str, str | float]:
        # Only what is not usual: every message costs its bytes.
        rate = {} if self.plan.rate == LEARNING_RATE else {kinds.FOLD_RATE: self.plan.rate}
        classes = {kinds.FOLD_CLASSES: True} if self.place_one_class else {}
        estimates = {kinds.FOLD_ESTIMATES: True} if self.estimates else {}
        return {
            **rate,
            **classes,
            **estimates,
            kinds.NUM_FOLDS: self._folds(size),
            kinds.FOLD_SIZE: size or self.plan.size,
            kinds.FOLD_STEPS: self.plan.steps,
            kinds.FOLD_WIDTH: self.form.width,
            kinds.FOLD_SEED: self.seed,
        }


def sends_estimates(r: Round) -> bool:
    """Return whether rows hold exact estimates: clients train by Newton's steps, and the model looks linear.

    It is a matrix and at most a vector of as many levels. Whether it is linear a client knows.
    """
    shapes = [entry.shape for entry in r.models.layout.entries]
    looks = len(shapes[0]) == 2 and shapes[1:] in ([], [shapes[0][:1]])
    training = Training.received(r.config)
    return looks and training.solver == "newton" and r.models.layout.size <= MOST_ESTIMATED


def _samples(client: Client, held_out: bool) -> int:
    """Return how many samples a client trains on, of those that it introduced itself with."""
    return left_after(client.num_examples) if held_out else client.num_examples
