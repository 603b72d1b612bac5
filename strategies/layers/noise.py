"""Noise on what depends on clients' data (`privacy.kind`): the cost to each client, and the layer itself."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from florets.strategies.base.federation import BudgetSpent, FederationError, RoundFailed
from florets.strategies.base.groups import Cluster, Grouping, Groups, Rows, opened
from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Averaging
from florets.strategies.base.report import PRIVACY, Client, Detail
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.accountant import epsilon_of
from florets.strategies.core.noised_groups import COST, nearest_centre, noised_centres
from florets.strategies.core.rows import Rows as Vectors
from florets.strategies.coverage import COMPARED, Releases
from florets.strategies.layers.budget import Budget, multiplier
from florets.strategies.settings import Privacy
from florets.task.training.settings import Training
from florets.task.wire import kinds, noise
from florets.task.wire.replies import Update

SIZES = 0.1
"""Fraction of the cost of a round's update that pays for noised sizes of hidden groups."""
LENGTHS = 0.3
"""Fraction of the cost of a round's update that pays for measuring the usual length of updates, until it is known."""
_POWERS = 14
"""Lengths are counted in powers of 2 with exponents of at most this magnitude."""
_FOLDS = "florets.strategies.shared.client:train_folds"
_UNCOVERED = "its answers are not noised, so that privacy.kind does not cover them"
_CENTRAL = "privacy.kind=central"
_KINDS = frozenset({kinds.HELLO, kinds.TRAIN, kinds.TRAIN_SELECT, kinds.LOSSES, kinds.EVALUATE}) | kinds.SECURE
_COVERED = {
    kinds.LOSSES: frozenset({"losses", "choices"}),
    kinds.TRAIN_SELECT: frozenset({"choices"}),
}
"""Requests, one of which `Settings.asks` must name before a message of this kind is sent."""


class Ledger:
    """Keeps a run within its privacy budget; `save` is called before each release, `ended` says why a run ended.

    `training` is the local training that clients are asked for.
    """

    def __init__(self, privacy: Privacy, releases: Releases, budget: Budget) -> None:
        self.privacy, self.releases, self.budget = privacy, releases, budget
        self.is_local = privacy.is_local
        self.training = Training()
        self.save: Callable[[Budget], None] | None = None
        self.ended = ""
        self._is_due = False
        self._asked: list[str] = []
        self._groups: Mapping[str, int] = {}
        self._present = self._online = 0
        self._sizes: FloatArray = np.zeros(0)
        self._clip, self._lengths, self._looks = privacy.clip, np.zeros(2 * _POWERS + 1), 0

    @property
    def settings(self) -> dict[str, str | float]:
        """Message settings by which clients noise what they send; none where the server does."""
        if not self.is_local:
            return {}
        asked: dict[str, str | float] = {
            kinds.PRIVACY: "local",
            kinds.PRIVACY_CLIP: self.privacy.known_clip,
            kinds.PRIVACY_NOISE: multiplier(self.budget.update),
        }
        if self.budget.grouping:
            asked[kinds.PRIVACY_LOSS_NOISE] = multiplier(self.budget.grouping)
        return asked

    @property
    def _round_cost(self) -> float:
        return self.budget.update + self.releases.each * self.budget.grouping

    def can_pay(self, client: Client) -> bool:
        return self.budget.affords(client.key, self._round_cost)

    def begin(self, participants: Sequence[Client], online: Sequence[Client]) -> None:
        """Raise BudgetSpent if too few clients can pay for another round, RoundFailed if too few participate."""
        self._present, self._online = len(participants), len(online)
        delta, crowd = self.budget.delta, self._crowd(online)
        if not self.budget.spent and delta * crowd >= 1:
            raise FederationError(
                f"privacy.delta={delta:g}: one among {crowd} is to be hidden, and with 1 / {crowd} or more it may be "
                f"given away; start anew with less than {1 / crowd:.2g}"
            )
        if len(participants) >= self.privacy.min_group:
            return
        if all(map(self.can_pay, online)):
            raise RoundFailed(
                f"{len(participants)} clients take part, fewer than privacy.min_group={self.privacy.min_group}"
            )
        raise BudgetSpent(self._end_words())

    def _crowd(self, online: Sequence[Client]) -> int:
        """Return among how many one is hidden."""
        return len(online)

    def require_more(self, key: str, online: Sequence[Client]) -> None:
        """Raise ValueError where too few clients can pay for the further rounds that a key asks for."""
        if sum(map(self.can_pay, online)) < self.privacy.min_group:
            raise ValueError(
                f"{key}: {self._spent()}; leave it out, or start a new run, whose epsilon adds to this one's."
            )

    def _spent(self) -> str:
        budget = self.budget
        return (
            f"privacy.epsilon={budget.epsilon:g}: {budget.reached:.4g} is spent (delta {budget.delta:.2g}), and "
            "another round would pass it"
        )

    def _end_words(self) -> str:
        return f"{self._spent()}; the run ends with its models"

    def charge(self, keys: Sequence[str], cost: float) -> None:
        """Charge clients for a release before it is made; where one cannot pay, none is charged (BudgetSpent)."""
        if not all(self.budget.affords(key, cost) for key in keys):
            raise BudgetSpent(self._end_words())
        spent = self.budget.spent
        spent.update({key: spent.get(key, 0.0) + cost for key in keys})
        self._note(keys)
        if self.save is not None:
            self.save(self.budget)

    def _note(self, keys: Sequence[str]) -> None:
        """Update what is derived from the ledger for these clients; called before it is saved."""

    def charge_grouping(self, keys: Sequence[str]) -> None:
        """Charge clients for losses or rows that they noise themselves; sums are charged by `noised_sum`."""
        if self.is_local:
            self.charge(keys, self.budget.grouping)

    def raised_by(self, num_models: int) -> float:
        """Return by how much clients that noise their losses raise them."""
        if not self.is_local:
            return 0.0
        return noise.raised_by(num_models, multiplier(self.budget.grouping))

    def charge_training(self, keys: Sequence[str], groups: Mapping[str, int]) -> None:
        """Charge clients for updates that they are asked for; `groups` are theirs, where they are known."""
        self._asked, self._groups = list(keys), dict(groups)
        self.charge(keys, self._round_cost)
        self._is_due = True

    def noised_sum(self, keys: Sequence[str], total: FloatArray, norm: float, count: int = 1) -> FloatArray:
        """Return a sum over clients, each of at most this norm, with noise as of `count` releases, its cost."""
        cost = count * self.budget.grouping
        self.charge(keys, cost)
        return total + noise.gaussian(total.shape, multiplier(cost) * norm)

    def compared(self, keys: Sequence[str], losses: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
        """Return which of `count` models fits each client best relative to the mean client, and centres (K, D)."""
        vectors, norm = noise.centred(losses), noise.loss_norm(losses.shape[1])
        centres = noised_centres(vectors, count, norm, lambda total, most: self.noised_sum(keys, total, most, COST))
        return nearest_centre(vectors, centres), centres + noise.LOSS_CLIP / 2

    def changes(
        self, vectors: Vectors, assignment: IntArray, start: FloatArray, shared: BoolArray, everybody: bool
    ) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Return the mean change (K, R) of each model's clients, with noise; which models have one (K,).

        `vectors` (P, R) came from clients of the models `assignment` (P,) in `start` (K, R); entries `shared` (R,)
        are averaged over all. The third array is the part of each vector that counted (P,). A mean is over those that
        were asked, not those that replied, or over all participants with `everybody`; sizes of hidden groups are
        noised.
        """
        if not self._is_due:
            raise ValueError(f"{_CENTRAL}: a round's updates are paid for once; average them once")
        self._is_due, count = False, len(start)
        z, hidden, part = multiplier(self.budget.update), self.releases.hidden and count > 1, 1.0
        clip = self._clip
        if clip is None:
            part -= LENGTHS
            lengths = [np.linalg.norm(vectors[row] - start[model]) for row, model in enumerate(assignment.tolist())]
            clip = self._usual(np.array(lengths), z / math.sqrt(LENGTHS))
        part -= SIZES if hidden else 0.0
        sums, counted = np.zeros(start.shape), np.ones(len(assignment))
        for row, model in enumerate(assignment.tolist()):
            change = vectors[row] - start[model]
            kept = noise.within(change, clip)
            sums[model] += kept
            if kept is not change:
                counted[row] = clip / max(float(np.linalg.norm(change)), 1e-300)
        sums += noise.gaussian(sums.shape, z * clip / math.sqrt(part))
        present = float(self._present)
        if hidden:
            self._sizes = shrunk_sizes(np.bincount(assignment, minlength=count), z / math.sqrt(SIZES), present)
        else:
            known = [self._groups.get(key, 0) if count > 1 else 0 for key in self._asked]
            self._sizes = np.bincount(known, minlength=count).astype(np.float64)
        divisor = np.full(count, present) if everybody else np.maximum(self._sizes, 1.0)
        means = sums / divisor[:, np.newaxis]
        means[:, shared] = sums[:, shared].sum(axis=0) / present
        members = self._sizes > 0
        means[np.ix_(~members, ~shared)] = 0.0
        return means, members, counted

    def _usual(self, lengths: FloatArray, deviation: float) -> float:
        """Return the usual length of the clients' updates, or the default while noise may account for all counts.

        Each client counts in one power of 2; noised counts are added up over the rounds until one is significant.

        Source: Andrew et al. 2021 (a bound that is measured privately).
        Deviation: counting all powers at once takes a round or two, and no moving bound.
        """
        there = lengths[np.isfinite(lengths) & (lengths > 0)]
        powers = np.clip(np.rint(np.log2(there)), -_POWERS, _POWERS).astype(np.int64)
        counts = np.bincount(powers + _POWERS, minlength=len(self._lengths))
        self._lengths = self._lengths + counts + noise.gaussian(len(counts), deviation)
        self._looks += 1
        near = np.convolve(self._lengths, np.ones(3), "same")
        best = int(np.clip(near.argmax(), 1, 2 * _POWERS - 1))
        if near[best] < 4 * deviation * math.sqrt(3 * self._looks):
            return self.privacy.known_clip
        weights = np.maximum(self._lengths[best - 1 : best + 2], 0.0)
        self._clip = 2.0 ** float(best - _POWERS + (weights[2] - weights[0]) / weights.sum())
        return self._clip

    def merged(self, bank: FloatArray, assignment: Mapping[str, int]) -> FloatArray:
        """Return the bank (K, R) in which groups of fewer than `min_group` clients have the others' mean model."""
        count = len(bank)
        if self._is_due and not self.is_local:
            raise ValueError(f"{_CENTRAL}: updates were averaged without noise; use Round.average")
        if self.releases.hidden:
            sizes = self._sizes * max(self._online, self._present) / max(self._present, 1)
        else:
            known = [model for model in assignment.values() if model < count]
            sizes = np.bincount(known, minlength=count).astype(np.float64)
        small = (sizes > 0) & (sizes < self.privacy.min_group)
        if count == 1 or not small.any():
            return bank
        weights = np.where(small, 0.0, sizes) if not small[sizes > 0].all() else sizes
        bank = bank.copy()
        bank[small] = weights @ bank / weights.sum()
        return bank

    @property
    def planned(self) -> dict[str, str | float]:
        """What `florets plan` prints: epsilon of the run, of a round and of grouping before it; noise, in clips."""
        budget, releases = self.budget, self.releases
        costs = {"round": self._round_cost, "grouping": releases.before * budget.grouping}
        alone = {name: epsilon_of(math.sqrt(cost), budget.delta) if cost else 0.0 for name, cost in costs.items()}
        noised = multiplier(budget.update) / math.sqrt(1 - SIZES if releases.hidden else 1)
        return {"kind": self.privacy.kind, "epsilon": budget.epsilon, "delta": budget.delta, "noise": noised, **alone}


def shrunk_sizes(counts: IntArray, deviation: float, total: float) -> FloatArray:
    """Return group sizes (K,), at least 1, from noised counts, shrunk towards equal sizes according to the noise."""
    even = total / len(counts)
    noised = counts + noise.gaussian(len(counts), deviation)
    found = noised - noised.mean()
    prior = (even / 2) ** 2
    sizes: FloatArray = np.clip(even + found * prior / (prior + deviation**2), 1.0, total)
    return sizes


class Noise(Layer):
    """The layer that keeps a run within its budget; its last planned groupings are in the round `last_grouping`."""

    name = "noise"
    under_noise = True

    def __init__(self, ledger: Ledger, asks: frozenset[str], last_grouping: int) -> None:
        self.ledger, self.asks, self.last_grouping = ledger, asks, last_grouping

    @property
    def message(self) -> Mapping[str, str | float]:
        return self.ledger.settings

    def can_take_part(self, client: Client) -> bool:
        return self.ledger.can_pay(client)

    def averaging(self, averaging: Averaging) -> Averaging:
        return replace(averaging, privacy=self.ledger)

    def begin(self, r: Round) -> None:
        self.ledger.training = Training.received(r.config)
        self.ledger.begin(r.participants, r.online)

    def allow(self, kind: str, handler: object) -> None:
        """Refuse messages whose answers have no noise, or none that is planned."""
        if kind not in _KINDS and not (self.ledger.releases.hidden and handler == _FOLDS):
            raise ValueError(f"{handler or kind}: {_UNCOVERED}; use privacy.kind=none")
        if (covered := _COVERED.get(kind)) and not covered & self.asks:
            named = " or ".join(sorted(covered))
            raise ValueError(f"{kind}: {_UNCOVERED}, unless Settings.asks names {named}; use privacy.kind=none")

    def grouping(self, group: Grouping, r: Round) -> Grouping:
        """Group by noised sums; a client's own noise is in its rows already."""

        def noised(keys: Sequence[str], rows: Rows, k: int, cluster: Cluster) -> Groups:
            is_last = r.server_round >= self.last_grouping
            if self.ledger.is_local:
                return replace(group(keys, rows, k, cluster), is_last=is_last)
            # In place of k-means and matching: which model fits better than it does the mean client.
            losses = opened(rows)
            if callable(losses):
                raise ValueError(f"{_CENTRAL}: these groups are not made of rows alone, and have no noise")
            labels, centres = self.ledger.compared(keys, losses, r.models.count)
            models = np.arange(len(centres))
            return Groups(keys, losses, labels, np.zeros(len(keys), np.bool_), models, centres, is_last)

        return noised

    def choices(self, r: Round) -> dict[str, int] | None:
        """Compare models with the mean client's losses at first, when all would choose the least noised one."""
        if self.ledger.is_local or "choices" not in self.asks or not 1 < r.server_round <= 1 + COMPARED:
            return None
        losses = r.losses()
        found = self.ledger.compared(losses.keys, opened(losses.rows), r.models.count)[0]
        return dict(zip(losses.keys, found.tolist(), strict=True))

    def trains(self, plan: Plan[Update], r: Round) -> Plan[Update]:
        """Charge clients for the updates that they are asked for; refuse what the server's noise does not cover."""
        keys, ledger = [request.key for request in plan.requests], self.ledger
        if not ledger.is_local and plan.keep is not None:
            raise ValueError(f"{_CENTRAL}: what is kept for single clients has no noise; use privacy.kind=none")
        known = ledger.is_local or ledger.releases.hidden or r.models.count == 1
        if not known and not plan.groups.keys() >= set(keys):
            raise ValueError(f"{_CENTRAL}: needs the model that each client trains; plan it by Round.train")
        ledger.charge_training(keys, plan.groups)
        return plan

    def seals(self, what: Literal["updates", "losses"]) -> str:
        if self.ledger.is_local:
            return ""
        covered = "averages of updates (Round.average)" if what == "updates" else "groups of losses (Round.group)"
        return f"{_CENTRAL}: covers {covered}, and no single ones; use privacy.kind=none"

    def allows_tests(self, r: Round) -> bool:
        """Allow test scores, which have no noise, only in a simulation."""
        return not self.ledger.is_local or r.strategy.federation.is_simulated

    def combined(self, bank: FloatArray, r: Round) -> FloatArray:
        return self.ledger.merged(bank, r.strategy.assignment)

    def details(self, r: Round) -> Mapping[str, Detail]:
        budget, kind = self.ledger.budget, self.ledger.privacy.kind
        return {PRIVACY: {"epsilon": budget.reached, "delta": budget.delta, "target": budget.epsilon, "kind": kind}}
