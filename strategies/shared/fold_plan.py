"""Division of clients' data for discovery: folds and their size, equal for all clients, and the steps on each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FEW_CLIENTS = 6
"""Up to so many clients, eight folds: the permutation test has too few arrangements with four."""
ENOUGH = 48
"""Samples of a client from which on discovery works: four folds of 12."""
LEAST = 24
"""Samples below which a client has no folds where others have more: it is placed afterwards."""
THREE_FOLDS = 40
EIGHT_FOLDS = 64
WANTED = 68
"""Samples that are taken where clients have them, whatever that costs: four folds of 17."""
LEAST_STEPS, MOST_STEPS = 4, 10
PASSES = 480
"""Samples times steps of one client, all folds together, where it has few samples."""


@dataclass(frozen=True)
class FoldPlan:
    """What every client trains for discovery: the same work and the same number of samples for all.

    Attributes
    ----------
    folds
        Disjoint parts of a client's data.
    size
        Samples of each.
    steps
        Of Adam on each, every one on the whole fold.
    """

    folds: int
    size: int
    steps: int

    @property
    def samples(self) -> int:
        """Samples that a client needs for it; one with more draws so many, one with fewer is placed afterwards."""
        return self.folds * self.size

    @classmethod
    def of(cls, counts: Sequence[int], local_work: Callable[[int], float]) -> "FoldPlan":
        """Return the plan for clients with so many samples.

        The test for groups is exact only where folds are of one size, so that the smallest client that takes part
        decides it. At least half of the clients take part. More than `WANTED` samples are used as far as all folds
        together cost no more than a client's local training in one round.

        Parameters
        ----------
        counts
            Samples of each client, at least one client.
        local_work
            Samples that local training in one round takes, each as often as it is seen, by a client's number of them.
        """
        counts = sorted(counts)
        enough = [count for count in counts if count >= ENOUGH]
        if 2 * len(enough) >= len(counts):
            smallest = enough[0]
        else:
            fair = [count for count in counts if count >= LEAST]
            # Three of four of those that can take part at all.
            smallest = fair[len(fair) // 4] if 2 * len(fair) >= len(counts) else counts[len(counts) // 4]
        budget = local_work(smallest)
        samples = max(2, min(smallest, max(WANTED, int(budget) // LEAST_STEPS)))
        folds = 3 if samples < THREE_FOLDS else 4
        if len(counts) <= FEW_CLIENTS and smallest >= EIGHT_FOLDS:
            # With few clients the work is small, and every sample counts.
            folds, samples = 8, max(samples, min(smallest, 8 * ENOUGH // 4))
        folds = min(folds, samples)
        steps = min(PASSES, max(budget, PASSES if smallest < 2 * ENOUGH else 0.0)) / samples
        return cls(folds, samples // folds, round(min(max(steps, LEAST_STEPS), MOST_STEPS)))
