"""FedGWC: clusters are split by how the losses of sampled clients compare, round after round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import Detail
from florets.strategies.base.state import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.fedgwc.interactions import (
    MEAN_RATE,
    Interactions,
    affinities,
    best_split,
    gaussian_rewards,
    resting_change,
)
from florets.strategies.settings import Compared, Experiment, SharedLayers
from florets.task.keys import setting
from florets.task.wire import codec, kinds
from florets.task.wire.replies import TracedUpdate, Update

LEAST_PARTICIPANTS = 3
"""Of two clients both are equally far from their mean: their rewards are equal, whatever their losses."""

MOST_GROUPS = 4
"""Of one split, unless `most_groups` says otherwise."""


@dataclass(frozen=True)
class FedGWCSettings(SharedLayers):
    """Clusters are split by how the losses of the sampled clients compare, once these comparisons settle."""

    fraction_train: float = setting(
        0.4,
        "participation rate rho: fraction of the clients that a round samples; at most 0.5 (the paper: 0.1 of 100 "
        "clients)",
        above=0,
        most=1,
    )
    reward_losses: int = setting(
        7,
        "S: losses that a client reports of its local training: of each step where it takes S steps, else means of S "
        "equal parts",
        least=1,
    )
    memory: Literal["recent", "all"] = setting(
        "recent",
        "interactions of two clients: as in the paper, forgotten by fraction_train whenever they meet, or the "
        "mean over all rounds in which they met",
    )
    gamma: float = setting(0.1, "affinity of two clients: exp(-gamma |difference of their columns|^2)", above=0)
    rest_threshold: float = setting(
        1e-5,
        "eps: a cluster may be split once the smoothed squared change of its interactions is below this",
        above=0,
    )
    thresholds: Literal["relative", "absolute"] = setting(
        "relative",
        "relative: eps holds for 10 of 100 clients a round and is converted; absolute: taken as it is",
    )
    most_groups: int | None = setting(
        None, "most groups that a cluster is split into at once; null: 1 / fraction_train, up to 4", least=2
    )
    most_index: float = setting(1.0, "a split needs a Davies-Bouldin index below this", above=0)

    compares: ClassVar[Compared] = "clients"
    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
    # A gradient is one step, with one loss.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}

    @property
    def groups(self) -> int:
        """Most groups of one split."""
        if self.most_groups is not None:
            return self.most_groups
        # The small constant keeps 1 / 0.2 from losing one to rounding.
        return min(MOST_GROUPS, math.floor(1 / self.fraction_train + 1e-9))

    def conflicts(self) -> list[str]:
        """Refuse full participation, and a rate at which a cluster may not be split in two."""
        if self.fraction_train == 1:
            return [
                "strategy.fraction_train=1: FedGWC cannot split where all clients take part in every round: clients "
                "are compared by whom they take part with, and all would be with the same; use at most 0.5."
            ]
        if self.groups < 2:
            return [
                f"strategy.fraction_train={self.fraction_train}: FedGWC splits a cluster into at most "
                "1 / fraction_train groups, and here that is one; use at most 0.5, or set strategy.most_groups=2."
            ]
        return []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse rounds of fewer clients than can be compared."""
        # Of nodes with data of their own nobody knows how many will come: round 1 says where they are too few.
        known = run.task.partition != "own"
        if not known or int(self.fraction_train * run.num_clients + 1e-9) >= LEAST_PARTICIPANTS:
            return []
        least = math.ceil(LEAST_PARTICIPANTS / self.fraction_train - 1e-9)
        return [
            f"num_clients={run.num_clients}: FedGWC compares the clients of a round, and with "
            f"strategy.fraction_train={self.fraction_train} there would be fewer than {LEAST_PARTICIPANTS}; use at "
            f"least {least} clients, or sample more of them."
        ]


@dataclass
class FedGWCState(State):
    """What FedGWC remembers.

    Attributes
    ----------
    clusters
        Of each model its cluster's members and their interactions; a client is a member once it has trained.
    details
        What the round tells in its report.
    """

    phase: str = "clustering"
    clusters: list[Interactions] = field(default_factory=lambda: [Interactions()])
    details: dict[str, Detail] = field(default_factory=dict)


class FedGWC(Strategy[FedGWCSettings, FedGWCState]):
    """Federated Gaussian weighting clustering; the number of models grows.

    All clients begin in one cluster, with one model. Clients report the losses of their local training; one whose
    losses are near the mean of the round's participants of its cluster is rewarded. Whose reward is how high in whose
    company, averaged over rounds, is the cluster's interaction matrix. Once that rests, clients whose company acts
    alike on the others' rewards are grouped, and where the groups are clearly apart each goes on from the cluster's
    model, with its part of the matrix. With `k` an integer there are no more models than that.

    A client that comes after a split takes the model with the lowest loss, and joins its cluster.

    Raises
    ------
    FederationError
        If so few clients are online that the first round has fewer than three; of a later one nothing is learned.

    Source: Licciardi et al. 2025 (FedGWC, arXiv 2502.03340), by its released code (davedleo/FedGWC): rewards,
    interaction matrix, stopping criterion, spectral clustering, and its settings.
    Deviation: participants are drawn from all clients, so that a round costs what other strategies' does; in that
    code each cluster draws as many as the first one did, and a round costs more with every split. A cluster's share
    of them is thus the rate everywhere, and so is the number of groups that it may be split into.
    Deviation: eps, found for 10 of 100 clients a round, is converted for others (`interactions.resting_change`).
    Deviation: who met fewer than half of its cluster has no say in a split, and is then placed as a new client is.
    With `memory=all` interactions are means over all rounds, which is ours: at high participation the paper's average
    forgets faster than it learns.
    """

    Settings = FedGWCSettings
    State = FedGWCState

    def details(self) -> dict[str, Detail]:
        """Return the number of models, the change of each cluster's interactions over eps, and a split's index."""
        return self.state.details

    def plan(self, context: Round) -> Plan[Update]:
        """Let every participant train its cluster's model and report its losses."""
        if context.server_round == 1 and len(context.participants) < LEAST_PARTICIPANTS:
            raise FederationError(
                f"FedGWC compares the clients of a round, and of {len(context.online)} clients online "
                f"strategy.fraction_train={self.settings.fraction_train:g} samples {len(context.participants)}; it "
                f"needs {LEAST_PARTICIPANTS}: raise fraction_train or min_clients"
            )
        places = {key: model for model, cluster in enumerate(self.state.clusters) for key in cluster.members}
        self._place_newcomers(context, places)
        layout, number = context.models.layout, self.settings.reward_losses

        def read(key: str, content: RecordDict) -> Update:
            return codec.read(TracedUpdate, content, layout=layout, model=places[key], S=number)

        plan = context.train_assigned(places, {kinds.STEP_LOSSES: number})
        return replace(plan, read=read, combine=self._combine)

    def _place_newcomers(self, context: Round, places: dict[str, int]) -> None:
        """Add the model of each participant that is in no cluster; one whose losses are lost sits this round out."""
        new = [client for client in context.participants if client.key not in places]
        if context.models.count == 1:
            places.update({client.key: 0 for client in new})
        elif new:
            with context.meter.part("losses"):
                replies = context.ask_losses(new, context.models)
            places.update({key: int(np.argmin(reply.losses)) for key, reply in replies.ok})

    def _combine(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average each cluster's updates, then learn from their losses and split clusters that rest."""
        state, bank = self.state, self.average(updates)
        state.details = {}
        with self.context.meter.part("cluster"):
            for model in sorted({update.model for _, update in updates}):
                own = {
                    key: update
                    for key, update in updates
                    if update.model == model and isinstance(update, TracedUpdate)
                }
                if self._observe(state.clusters[model], own):
                    more = self._split(model)
                    bank = np.vstack([bank, *[bank[model]] * more])
        state.details["models"] = float(len(bank))
        state.details["change"] = [cluster.change / self._eps(cluster) for cluster in state.clusters]
        return bank

    @property
    def _rate(self) -> float:
        """Fraction of the clients that take part."""
        return len(self.context.participants) / len(self.context.online)

    def _eps(self, cluster: Interactions) -> float:
        """Return the change below which a cluster rests."""
        threshold = self.settings.rest_threshold
        if self.settings.thresholds == "absolute":
            return threshold
        rate = self._rate if self.settings.memory == "recent" else MEAN_RATE
        return resting_change(threshold, rate, self._rate * len(cluster.members))

    def _observe(self, cluster: Interactions, updates: dict[str, TracedUpdate]) -> bool:
        """Learn from one cluster's participants; return whether it has rested for long enough."""
        rows = cluster.admit(list(updates))
        if len(rows) < LEAST_PARTICIPANTS:
            return False
        losses = np.stack([update.step_losses for update in updates.values()])
        weights = np.array([update.num_examples for update in updates.values()], dtype=np.float64)
        cluster.observe(rows, gaussian_rewards(losses, weights), self._rate, self.settings.memory)
        cluster.rests = cluster.rests + 1 if cluster.change < self._eps(cluster) else 0
        # As many rounds as it takes, on average, for every client to take part once.
        return cluster.rests >= math.ceil(1 / self._rate - 1e-9)

    def _split(self, model: int) -> int:
        """Split a cluster where its clients form groups; return how many models are new."""
        cluster, own = self.state.clusters[model], self.settings
        # A rest is over whatever comes of it: the next test needs another one.
        cluster.rests, cluster.change = 0, 1.0
        most, models = own.groups, len(self.state.clusters)
        if isinstance(self.k, int):
            most = min(most, self.k - models + 1)
        rows = cluster.known()
        if most < 2 or len(rows) <= len(self.context.participants):
            return 0
        known = cluster.part(rows)
        found = best_split(affinities(known.filled(), own.gamma), most, own.most_index)
        if found is None:
            return 0
        self.state.details["davies_bouldin"] = found.index
        for number, group in enumerate(_by_size(found.groups)):
            child = known.part(np.flatnonzero(found.groups == group))
            if number == 0:
                # The largest keeps the model, and with it those that are in none until they take part again.
                self.state.clusters[model] = child
            else:
                self.assignment.update(dict.fromkeys(child.members, len(self.state.clusters)))
                self.state.clusters.append(child)
        return len(self.state.clusters) - models


def _by_size(groups: IntArray) -> list[int]:
    """Return the groups' numbers, the largest first; of equal ones that of the first client."""
    return [int(group) for group in np.argsort(-np.bincount(groups), kind="stable")]
