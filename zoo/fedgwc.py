"""FedGWC: clusters are split by how the losses of sampled clients compare, round after round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from flwr.app import RecordDict
from scipy.linalg import eigh, qr, svd
from scipy.spatial.distance import cdist
from sklearn.metrics import davies_bouldin_score

from florets import Experiment, Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.federation import FederationError
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.outliers import lower_median
from florets.strategies.settings import MODELS_OF_GROUPS, SharedLayers
from florets.task.device import one_thread
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import LOSS_VECTORS, MODELS
from florets.task.wire.replies import TracedUpdate

LEAST_PARTICIPANTS = 3
"""Of two clients both are equally far from their mean: their rewards are equal, whatever their losses."""
REWARD_LOSSES = 7
"""S, losses that a client reports of its local training: of each step where it takes S steps, else means of S equal
parts."""
CLIP = 100.0
"""Losses count up to so many times the median client's."""
REST = 1e-5
"""Eps: a cluster may be split once the smoothed squared change of its interactions is below this, in rounds of 10 of
100 clients; for others it is converted."""
_PAPER_RATE, _PAPER_PARTICIPANTS = 0.1, 10
GAMMA = 0.1
"""The affinity of two clients is exp(-gamma |difference of their columns|^2)."""
MOST_INDEX = 1.0
"""A split needs a Davies-Bouldin index below this."""
MOST_GROUPS = 4
"""Of one split."""
_LARGEST = 1e100
_NEGLIGIBLE = 1e-8
_EQUAL = 1e-9


@dataclass(frozen=True)
class FedGWCSettings(SharedLayers):
    """Clusters are split by how the losses of the sampled clients compare, once these comparisons settle."""

    fraction_train: float = setting(
        0.4,
        "participation rate rho: fraction of the clients that a round samples; at most 0.5, as clients are compared "
        "by whom they take part with (the paper: 0.1 of 100 clients)",
        above=0,
        most=0.5,
    )

    compares = "clients"
    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
    # A gradient is one step, with one loss.
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_OF_GROUPS

    def problems(self, run: Experiment) -> list[str]:
        """Refuse rounds of fewer clients than can be compared."""
        least = math.ceil(LEAST_PARTICIPANTS / self.fraction_train - 1e-9)
        # Of nodes with data of their own nobody knows how many will come: round 1 says where they are too few.
        if run.task.partition == "own" or run.num_clients >= least:
            return []
        return [
            f"num_clients={run.num_clients}: FedGWC compares the clients of a round, and with "
            f"strategy.fraction_train={self.fraction_train} there would be fewer than {LEAST_PARTICIPANTS}; use at "
            f"least {least} clients, or a larger fraction."
        ]


@dataclass
class Interactions:
    """What is remembered of one cluster's clients, in the order of `members`."""

    members: list[str] = field(default_factory=list)
    # W (M, M): entry i, j is the reward of i, averaged over the rounds in which j took part as well.
    matrix: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    # (M, M), in how many rounds two clients did; where they never did, the entry of `matrix` means nothing.
    meetings: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    # Smoothed mean squared change of the entries of a round's participants; for how many rounds it has been small.
    change: float = 1.0
    rests: int = 0

    def admit(self, keys: Sequence[str]) -> IntArray:
        """Return the rows of these clients, after new ones have been given one."""
        places = {key: row for row, key in enumerate(self.members)}
        self.members += [key for key in keys if key not in places]
        places |= {key: row for row, key in enumerate(self.members)}
        new = len(self.members) - len(self.matrix)
        self.matrix, self.meetings = np.pad(self.matrix, (0, new)), np.pad(self.meetings, (0, new))
        return np.array([places[key] for key in keys], dtype=np.int64)

    def observe(self, rows: IntArray, rewards: FloatArray, rate: float) -> None:
        """Move the entries of the pairs of the participants (P,) towards their `rewards` (P,).

        `rate` is a, the fraction of the cluster's clients that a round samples.

        Source: FedGWC, update of the interaction matrix: W_ij <- (1 - a) W_ij + a r_i / sum r for participants i, j,
        from 1 / M^2 on, and the smoothed change of these entries.
        Deviation: shares of the rewards are multiplied by P / (a M). That is 1 where a round has as many participants
        as it should; where replies are lost, or a cluster has more or fewer of the round's clients, entries keep
        their scale. M counts clients that have taken part: in the first rounds, while others are still to come, the
        factor is above 1.
        """
        pairs = np.ix_(rows, rows)
        before = self.filled()[pairs]
        self.meetings[pairs] += 1
        targets = rewards / rewards.sum() * len(rows) / (rate * len(self.members))
        after = before + rate * (targets[:, np.newaxis] - before)
        self.matrix[pairs] = after
        self.change = float((1 - rate) * self.change + rate * np.mean((after - before) ** 2))

    def filled(self) -> FloatArray:
        """Return the matrix with 1 / M^2, where every entry begins, for those who never met."""
        return np.where(self.meetings > 0, self.matrix, 1 / max(len(self.members), 1) ** 2)

    def known(self) -> IntArray:
        """Return the rows of the clients that met at least half of the others."""
        met = self.meetings > 0
        np.fill_diagonal(met, False)
        return np.flatnonzero(2 * met.sum(axis=1) >= len(met) - 1)

    def part(self, rows: IntArray) -> "Interactions":
        """Return a cluster of some of the clients, which inherits their part of the matrix and nothing else."""
        pairs = np.ix_(rows, rows)
        return Interactions([self.members[row] for row in rows], self.matrix[pairs], self.meetings[pairs])


@dataclass
class FedGWCState(State):
    """What FedGWC remembers: each model's cluster, of whose members a client is one once it has trained."""

    phase: str = "clustering"
    clusters: list[Interactions] = field(default_factory=lambda: [Interactions()])


class FedGWC(Strategy[FedGWCSettings, FedGWCState]):
    """Federated Gaussian weighting clustering; the number of models grows.

    All clients begin in one cluster, with one model. Clients report the losses of their local training; one whose
    losses are near the mean of the round's participants of its cluster is rewarded. Whose reward is how high in whose
    company, averaged over rounds, is the cluster's interaction matrix. Once that rests, clients whose company acts
    alike on the others' rewards are grouped, and where the groups are clearly apart each goes on from the cluster's
    model, with its part of the matrix. With `k` an integer there are no more models than that.

    A client that comes after a split takes the model with the lowest loss, and joins its cluster.

    Source: Licciardi et al. 2025 (FedGWC, arXiv 2502.03340), by its released code (davedleo/FedGWC): rewards,
    interaction matrix, stopping criterion, spectral clustering, and its settings.
    Deviation: participants are drawn from all clients, so that a round costs what other strategies' does; in that
    code each cluster draws as many as the first one did, and a round costs more with every split. A cluster's share
    of them is thus the rate everywhere, and so is the number of groups that it may be split into.
    Deviation: eps, found for 10 of 100 clients a round, is converted for others (`resting_change`).
    Deviation: a client that met fewer than half of its cluster is left out of the split and placed afterwards, as a
    newcomer is.
    """

    leaving = (MODELS, LOSS_VECTORS)
    Settings = FedGWCSettings
    State = FedGWCState

    def round(self, r: Round) -> Steps:
        """Let every participant train its cluster's model and report its losses; split clusters that rest."""
        state, layout = self.state, r.models.layout
        if r.server_round == 1 and len(r.participants) < LEAST_PARTICIPANTS:
            raise FederationError(
                f"FedGWC compares the clients of a round and needs {LEAST_PARTICIPANTS}; of {len(r.online)} online "
                f"strategy.fraction_train={self.settings.fraction_train:g} samples {len(r.participants)}: raise "
                "fraction_train or min_clients"
            )
        places = {key: model for model, cluster in enumerate(state.clusters) for key in cluster.members}
        new = r.newcomers(places)
        # One whose losses are lost sits this round out.
        places |= r.ask_lowest(new) if r.models.count > 1 else {client.key: 0 for client in new}

        def read(key: str, content: RecordDict) -> Update:
            return codec.read(TracedUpdate, content, layout=layout, model=places[key], S=REWARD_LOSSES)

        updates = yield replace(r.train(places, {kinds.STEP_LOSSES: REWARD_LOSSES}), read=read)
        bank, rate = r.average(updates), len(r.participants) / len(r.online)
        traced = [(key, update) for key, update in updates if isinstance(update, TracedUpdate)]
        with r.meter.part("cluster"):
            for model in sorted({update.model for _, update in traced}):
                own = {key: update for key, update in traced if update.model == model}
                if _has_rested(state.clusters[model], own, rate):
                    more = self._split(model, r)
                    bank = np.vstack([bank, *[bank[model]] * more])
        state.details["models"] = float(len(bank))
        state.details["change"] = [cluster.change / resting_change(cluster, rate) for cluster in state.clusters]
        return bank

    def _split(self, model: int, r: Round) -> int:
        """Split a cluster where its clients form groups; return how many models are new."""
        cluster, clusters = self.state.clusters[model], self.state.clusters
        # A rest is over whatever comes of it: the next test needs another one.
        cluster.rests, cluster.change = 0, 1.0
        # The small constant keeps 1 / 0.2 from losing one to rounding.
        most, models = min(MOST_GROUPS, math.floor(1 / self.settings.fraction_train + 1e-9)), len(clusters)
        if isinstance(self.k, int):
            most = min(most, self.k - models + 1)
        rows = cluster.known()
        if most < 2 or len(rows) <= len(r.participants):
            return 0
        known = cluster.part(rows)
        found = best_split(affinities(known.filled(), GAMMA), most)
        if found is None:
            return 0
        self.state.details["davies_bouldin"] = found.davies_bouldin
        # The largest first, and of equal ones that of the first client: it keeps the model, and with it those that
        # are in none until they take part again.
        largest, *others = np.argsort(-np.bincount(found.groups), kind="stable")
        clusters[model] = known.part(np.flatnonzero(found.groups == largest))
        for group in others:
            child = known.part(np.flatnonzero(found.groups == group))
            self.assignment.update(dict.fromkeys(child.members, len(clusters)))
            clusters.append(child)
        return len(clusters) - models


def _has_rested(cluster: Interactions, updates: Mapping[str, TracedUpdate], rate: float) -> bool:
    """Learn from one cluster's participants; return whether it has rested for long enough."""
    rows = cluster.admit(list(updates))
    if len(rows) < LEAST_PARTICIPANTS:
        return False
    losses = np.stack([update.step_losses for update in updates.values()])
    weights = np.array([update.num_examples for update in updates.values()], dtype=np.float64)
    cluster.observe(rows, gaussian_rewards(losses, weights), rate)
    cluster.rests = cluster.rests + 1 if cluster.change < resting_change(cluster, rate) else 0
    # As many rounds as it takes, on average, for every client to take part once.
    return cluster.rests >= math.ceil(1 / rate - 1e-9)


def resting_change(cluster: Interactions, rate: float) -> float:
    """Return eps, below whose change a cluster rests, for this rate of participation.

    Entries that move by a rate a towards independent targets of variance v keep changing by 2 a^2 / (2 - a) v on
    average, squared, and v falls with the square of the number of participants, among whom rewards are shared out.
    """

    def level(rate: float, participants: float) -> float:
        return 2 * rate**2 / (2 - rate) / participants**2

    return REST * level(rate, rate * len(cluster.members)) / level(_PAPER_RATE, _PAPER_PARTICIPANTS)


def gaussian_rewards(losses: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the reward (P,) of each participant of a round, from its losses (P, S) at each local step.

    It is the mean over steps s of exp(-(loss_is - mean_s)^2 / (2 var_s)), with the participants' weighted mean and
    variance at that step; 1 for all where they have equal losses. A loss is infinite where a model diverged.

    Source: Licciardi et al. 2025 (FedGWC, arXiv 2502.03340), Gaussian rewards, as in the released code
    (davedleo/FedGWC) without its additional draws from the same Gaussian, which its settings switch off.
    Deviation: a loss counts up to 100 times the median client's at that step, so that one client that diverged, or
    lies, does not make all others equal.
    """
    limits = [min(CLIP * lower_median(column), _LARGEST) for column in losses.T]
    held = np.minimum(losses, limits)
    shares = (weights / weights.sum())[:, np.newaxis]
    mean = np.sum(shares * held, axis=0)
    squared = (held - mean) ** 2
    # Of equal losses only rounding errors differ from the mean.
    variance = np.maximum(np.sum(shares * squared, axis=0), (_NEGLIGIBLE * mean) ** 2)
    distances = np.divide(squared, variance, out=np.zeros_like(squared), where=variance > 0)
    rewards: FloatArray = np.exp(-distances / 2).mean(axis=1)
    return rewards


def affinities(interactions: FloatArray, gamma: float) -> FloatArray:
    """Return how alike two clients are, (M, M), in what they do to the others' rewards.

    Of clients j and k it is exp(-gamma |w_j - w_k|^2), with the columns w of the interaction matrix, scaled to [0, 1]
    as a whole, without their entries j and k; 0 on the diagonal.

    Source: Licciardi et al. 2025 (FedGWC), affinity matrix, as in the released code.
    """
    low, high = interactions.min(), interactions.max()
    columns = (interactions - low).T / (high - low if high > low else 1.0)
    own = np.diag(columns)
    # Entries j and k of both columns; `columns[k, j]` is entry j of column k.
    left_out = (own[:, np.newaxis] - columns.T) ** 2 + (columns - own[np.newaxis]) ** 2
    distances = np.clip(cdist(columns, columns, "sqeuclidean") - left_out, 0.0, None)
    found: FloatArray = np.exp(-gamma * (distances + distances.T) / 2)
    np.fill_diagonal(found, 0.0)
    return found


class Split(NamedTuple):
    """Groups (M,) of a cluster's clients, numbered in order of first appearance, and their Davies-Bouldin index."""

    groups: IntArray
    davies_bouldin: float


def best_split(affinity: FloatArray, most_groups: int) -> Split | None:
    """Return the spectral clustering with the least Davies-Bouldin index, of 2 to `most_groups` groups.

    None where no number of groups has an index below `MOST_INDEX`, or nothing tells the clients apart.

    Source: Licciardi et al. 2025 (FedGWC), as in the released code: clusters from the first n eigenvectors of the
    normalised affinity by a pivoted QR decomposition (Damle, Minden and Ying 2019), judged in the n eigenvectors
    behind the first, which is the same for all clients.
    Deviation: both take the same eigenvectors, where the code computes them twice, from different starts.
    """
    size = len(affinity)
    most_groups = min(most_groups, size - 2)
    others = affinity[~np.eye(size, dtype=bool)]
    if most_groups < 2 or others.max() - others.min() <= _EQUAL * others.max():
        return None
    degrees = np.sqrt(np.maximum(affinity.sum(axis=1), np.finfo(float).tiny))
    found = []
    with one_thread():
        _, vectors = eigh(affinity / np.outer(degrees, degrees), subset_by_index=(size - most_groups - 1, size - 1))
        vectors = vectors[:, ::-1]
        for number in range(2, most_groups + 1):
            groups = canonical(_nearest_axes(vectors[:, :number]))
            if groups.max() + 1 == number:
                places = vectors[:, 1 : number + 1] / degrees[:, np.newaxis]
                found.append(Split(groups, float(davies_bouldin_score(places, groups))))
    admitted = [split for split in found if split.davies_bouldin < MOST_INDEX]
    return min(admitted, key=lambda split: split.davies_bouldin, default=None)


def _nearest_axes(vectors: FloatArray) -> IntArray:
    """Return for each row (M, N) of orthonormal columns the representative row whose direction it has.

    The pivots of a QR decomposition are rows that are far apart; the rotation that comes nearest to taking them to
    the axes takes the others of their groups there, too.
    """
    _, _, pivots = qr(vectors.T, pivoting=True)
    left, _, right = svd(vectors[pivots[: vectors.shape[1]]].T, full_matrices=False)
    nearest: IntArray = np.argmax(np.abs(vectors @ (left @ right)), axis=1).astype(np.int64)
    return nearest
