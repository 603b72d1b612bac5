"""`Interactions`: the rewards of a cluster's clients, averaged over the rounds that two of them took part in."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.core import FloatArray, IntArray

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
