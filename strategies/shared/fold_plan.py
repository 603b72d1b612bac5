"""Division of clients' data for discovery: folds and their size, equal for all clients, and the steps on each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEW_CLIENTS = 6
"""Up to so many clients, eight folds: with four the permutation test has too few arrangements."""
EIGHT_FOLDS = 40
"""Samples of a client that eight folds take."""
ARRANGEMENTS = 600
"""Where few clients with fewer samples are tested: ways in which one client beside the others can be arranged, at
least. Three times what a p value of 0.5 % takes, so that chance does not decide. Each fold multiplies them by the
number of clients."""
LEAST_OF_TESTED = 16
"""Samples of a client that takes part in such a test: it has five to seven folds."""
THREE_FOLDS = 40
"""Samples below which three folds are better than four."""
ENOUGH = 48
"""Samples of a client from which on discovery works well: four folds of 12."""
LEAST = 24
"""Samples below which a client does not decide how large all folds are, as long as half of the others have more."""
LEAST_SIZE = 8
"""Samples of a fold below which a client has no folds where others have more: it is placed afterwards."""
MOST = 100
"""Samples that are used: four folds of 25.

Larger folds have fewer steps, for equal work. The less noise a fold has, the less it costs to divide a group, so that
the score falls more slowly beyond the right number of groups.
"""
MOST_OF_EIGHT = 96
MOST_FINE = 148
"""The same of a regression's trained model, whose few small steps say little more than one does.

With fewer of them on more samples a row costs the same and has less noise.
"""
LEAST_STEPS, MOST_STEPS = 2, 10
STEPS_OF_EIGHT = 4
EPOCHS = 2
"""Of local training on the smallest client's data: what all folds together may cost, in samples times steps."""
RATE, FINE_RATE = 0.01, 0.001
"""Learning rate on the folds, and that at a regression's model which has been trained.

Groups may then be nearer to it than steps of 0.01, and such steps would pass them by.
"""
LEAST_PASSES, MOST_PASSES = 150, 300
"""The same where the client has few samples, which must be seen more often, and where it has many."""


@dataclass(frozen=True)
class FoldPlan:
    """What every client trains for discovery: the same steps for all, and the same number of samples for most.

    Attributes
    ----------
    folds
        Disjoint parts of a client's data.
    size
        Samples of each. A client with too few samples for that has smaller ones, see `size_of`.
    steps, rate
        Of Adam on each, every one on the whole fold.
    """

    folds: int
    size: int
    steps: int
    rate: float = RATE

    @property
    def samples(self) -> int:
        """Samples that a client needs for it; one with more draws so many."""
        return self.folds * self.size

    def size_of(self, count: int) -> int:
        """Return the samples of each fold of a client with so many samples; 0: it has no folds.

        Smaller folds than the others' make noisier rows, which still say more of the groups, above all of one whose
        clients all have few samples, than placing these clients afterwards. The test leaves them out.
        """
        if count >= self.samples:
            return self.size
        size = count // self.folds
        return size if size >= LEAST_SIZE else 0

    @classmethod
    def of(cls, counts: Sequence[int], fine: bool = False, tests: bool = False) -> "FoldPlan":
        """Return the plan for clients with so many samples, at least one client; `fine` for a model that was trained.

        `tests`: whether there are groups is to be found. Few clients with few samples then have as many folds as the
        test takes; where K is given larger folds are better.

        The test for groups is exact only where folds are of one size, so that the smallest client that takes part in
        it decides it. Where half of the clients have enough samples these take part, else three of four of those that
        have a few.
        """
        rate = FINE_RATE if fine else RATE
        counts = sorted(counts)
        enough = [count for count in counts if count >= ENOUGH]
        fair = [count for count in counts if count >= LEAST]
        if 2 * len(enough) >= len(counts):
            smallest = enough[0]
        elif 2 * len(fair) >= len(counts):
            smallest = fair[len(fair) // 4]
        else:
            smallest = counts[len(counts) // 4]
        tested = _tested(counts) if tests and smallest < EIGHT_FOLDS else []
        if len(tested) > 2:
            smallest = tested[0]
        if len(counts) <= FEW_CLIENTS and smallest >= EIGHT_FOLDS:
            return cls(8, min(smallest, MOST_OF_EIGHT) // 8, STEPS_OF_EIGHT, rate)
        # Of one sample no fold is left over: whoever has no more is placed afterwards.
        samples = max(2, min(smallest, MOST_FINE if fine else MOST))
        folds = min(3 if samples < THREE_FOLDS else 4, samples)
        if len(tested) > 2:
            folds = 1 + math.ceil(math.log(ARRANGEMENTS) / math.log(len(tested)))
        passes = min(max(EPOCHS * smallest, LEAST_PASSES), MOST_PASSES)
        steps = min(max(round(passes / samples), LEAST_STEPS), MOST_STEPS)
        return cls(folds, samples // folds, steps, rate)


def _tested(counts: Sequence[int]) -> list[int]:
    """Return the sorted counts of few clients, without those that have less than half of what the median one has."""
    if len(counts) > FEW_CLIENTS:
        return []
    return [count for count in counts if count >= max(LEAST_OF_TESTED, counts[len(counts) // 2] / 2)]
