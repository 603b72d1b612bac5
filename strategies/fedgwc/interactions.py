"""FedGWC's arithmetic: Gaussian rewards of losses, clients' interactions, the affinities by which clusters split."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import eigh, qr, svd
from scipy.spatial.distance import cdist
from sklearn.metrics import davies_bouldin_score

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.outliers import lower_median
from florets.strategies.core.threads import one_thread

MEAN_RATE = 0.05
"""Means over all rounds rest once they change as averages do that forget by this: after about 25 meetings."""

_PAPER_RATE, _PAPER_PARTICIPANTS = 0.1, 10


@dataclass
class Interactions:
    """What is remembered of one cluster.

    Attributes
    ----------
    members
        Client keys, in the order of rows and columns.
    matrix
        W (M, M): entry i, j is the reward of i, averaged over the rounds in which j took part as well.
    meetings
        (M, M), in how many rounds two clients did; where they never did, the entry of `matrix` means nothing.
    change
        Smoothed mean squared change of the entries of a round's participants.
    rests
        For how many rounds it has been small.
    """

    members: list[str] = field(default_factory=list)
    matrix: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    meetings: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    change: float = 1.0
    rests: int = 0

    def admit(self, keys: Sequence[str]) -> IntArray:
        """Return the rows of these clients, after new ones have been given one."""
        places = {key: row for row, key in enumerate(self.members)}
        for key in keys:
            if key not in places:
                places[key] = len(self.members)
                self.members.append(key)
        new = len(self.members) - len(self.matrix)
        self.matrix, self.meetings = np.pad(self.matrix, (0, new)), np.pad(self.meetings, (0, new))
        return np.array([places[key] for key in keys], dtype=np.int64)

    def observe(self, rows: IntArray, rewards: FloatArray, rate: float, memory: str) -> None:
        """Move the entries of the participants' pairs towards their rewards.

        Parameters
        ----------
        rows : (P,) int64
            The round's participants.
        rewards : (P,) float64
            From `rewards.gaussian_rewards`.
        rate : float
            a, the fraction of the cluster's clients that a round samples.
        memory : str
            ``"recent"``: by the step a. ``"all"``: so that an entry is the mean over all rounds of its pair.

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
        step = rate if memory == "recent" else 1 / self.meetings[pairs]
        after = before + step * (targets[:, np.newaxis] - before)
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


def resting_change(threshold: float, rate: float, participants: float) -> float:
    """Return eps for other rounds than those that a threshold was found for: 10 participants, 10 % of the clients.

    Entries that move by a rate a towards independent targets of variance v keep changing by 2 a^2 / (2 - a) v on
    average, squared, and v falls with the square of the number of participants, among whom rewards are shared out.
    """
    return threshold * _level(rate, participants) / _level(_PAPER_RATE, _PAPER_PARTICIPANTS)


def _level(rate: float, participants: float) -> float:
    return 2 * rate**2 / (2 - rate) / participants**2


CLIP = 100.0
"""Losses count up to so many times the median client's."""

_LARGEST = 1e100
_NEGLIGIBLE = 1e-8


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


_EQUAL = 1e-9


@dataclass(frozen=True)
class Split:
    """Groups of a cluster's clients.

    Attributes
    ----------
    groups
        (M,), numbered from 0 in order of first appearance.
    index
        Their Davies-Bouldin index; the smaller, the further they are apart.
    """

    groups: IntArray
    index: float


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


def best_split(affinity: FloatArray, most_groups: int, most_index: float) -> Split | None:
    """Return the spectral clustering with the least Davies-Bouldin index, of 2 to `most_groups` groups.

    None where no number of groups has an index below `most_index`, or nothing tells the clients apart.

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
    with one_thread():
        _, vectors = eigh(affinity / np.outer(degrees, degrees), subset_by_index=(size - most_groups - 1, size - 1))
        vectors = vectors[:, ::-1]
        found = [_split(vectors[:, : number + 1], degrees, number) for number in range(2, most_groups + 1)]
    admitted = [split for split in found if split is not None and split.index < most_index]
    return min(admitted, key=lambda split: split.index, default=None)


def _split(vectors: FloatArray, degrees: FloatArray, number: int) -> Split | None:
    """Return `number` groups from one eigenvector more than that; None where there are fewer."""
    groups = canonical(_nearest_axes(vectors[:, :number]))
    if groups.max() + 1 < number:
        return None
    places = vectors[:, 1:] / degrees[:, np.newaxis]
    return Split(groups, float(davies_bouldin_score(places, groups)))


def _nearest_axes(vectors: FloatArray) -> IntArray:
    """Return for each row (M, N) of orthonormal columns the representative row whose direction it has.

    The pivots of a QR decomposition are rows that are far apart; the rotation that comes nearest to taking them to
    the axes takes the others of their groups there, too.
    """
    _, _, pivots = qr(vectors.T, pivoting=True)
    left, _, right = svd(vectors[pivots[: vectors.shape[1]]].T, full_matrices=False)
    nearest: IntArray = np.argmax(np.abs(vectors @ (left @ right)), axis=1).astype(np.int64)
    return nearest
