"""Plan of the folds on which clients train for a search for groups: how many, how large, and for how many steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from florets.task.training.settings import Training
from florets.task.wire.folds import LEARNING_RATE

FEW_CLIENTS = 6
"""Up to so many clients, eight folds: with four the permutation test has too few arrangements."""
EIGHT_FOLDS = 40
"""Samples of a client that eight folds take."""
ARRANGEMENTS = 600
"""Least number of arrangements of one client against the others, where few clients with fewer samples are tested.
Three times what a p value of 0.5 % takes, so that chance does not decide."""
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
NEAR_MEDIAN = 0.75
"""Share of the median client's samples from which on a client has folds of the largest size."""
SMALLER = (1 / 2, 1 / 4)
"""Of the largest size, the least ones of the two further classes of sizes in which clients are tested."""
MOST = 400
"""Samples that are used: four folds of 100. Larger ones say little more, and cost as much more."""
MOST_FINE = 148
"""The same for a regression's trained model, whose few small steps say little more than one does."""
LEAST_STEPS, ENOUGH_STEPS, MOST_STEPS = 2, 4, 10
"""On folds; more than enough where samples are few."""
STEPS_OF_EIGHT, PASSES_OF_EIGHT = 4, 384
FINE_RATE = 0.001
"""Learning rate at a regression's trained model: steps of 0.02 would pass groups by."""
LEAST_PASSES = 180
"""Of a sample through the model and back, on all folds: few samples must be seen more often."""
OF_LOCAL = 2.0
"""Passes on the folds for each one of a local training: in steps on whole folds, all folds side by side, two take
about the time of one in batches."""
MOST_PASSES_FINE = 300


@dataclass(frozen=True)
class FoldPlan:
    """What every client trains for discovery: the same steps of Adam on whole folds, mostly of one `size`.

    Clients with too few samples for that come in further classes with `smaller` sizes, the larger first.
    """

    folds: int
    size: int
    steps: int
    rate: float = LEARNING_RATE
    smaller: tuple[int, ...] = ()

    def size_of(self, count: int) -> int:
        """Return the samples of each fold of a client with so many samples; 0: it has no folds."""
        most = count // self.folds
        size = next((size for size in (self.size, *self.smaller) if size <= most), most)
        return size if size in (self.size, *self.smaller) or size >= LEAST_SIZE else 0

    def class_of(self, size: int) -> int:
        """Return the class of folds of a size, 0 for the largest; -1: of none."""
        sizes = (self.size, *self.smaller)
        return sizes.index(size) if size in sizes else -1

    @classmethod
    def of(
        cls, counts: Sequence[int], fine: bool = False, tests: bool = False, training: Training | None = None
    ) -> "FoldPlan":
        """Return the plan for clients with so many samples, at least one client; `fine` for a model that was trained.

        With `tests` whether there are groups is to be found: few clients with few samples then have as many folds as
        the test takes. `training` is the local one, which says what folds may cost; None: an epoch. The largest size
        is that of the smallest client near the median; where few have enough samples, that of three of four of those
        that have a few.
        """
        rate = FINE_RATE if fine else LEARNING_RATE
        counts = sorted(counts)
        enough = [count for count in counts if count >= ENOUGH]
        fair = [count for count in counts if count >= LEAST]
        if 2 * len(enough) >= len(counts):
            near = 0.0 if len(counts) <= FEW_CLIENTS else NEAR_MEDIAN * min(counts[len(counts) // 2], MOST)
            smallest = next(count for count in enough if count >= near)
        elif 2 * len(fair) >= len(counts):
            smallest = fair[len(fair) // 4]
        else:
            smallest = counts[len(counts) // 4]
        tested = _tested(counts) if tests and smallest < EIGHT_FOLDS else []
        if len(tested) > 2:
            smallest = tested[0]
        local = OF_LOCAL * (smallest if training is None else training.num_passes(smallest))
        if len(counts) <= FEW_CLIENTS and smallest >= EIGHT_FOLDS:
            samples = min(smallest, MOST)
            steps = min(max(round(max(PASSES_OF_EIGHT, local) / samples), LEAST_STEPS), STEPS_OF_EIGHT)
            return cls(8, samples // 8, steps, rate)
        # One sample leaves no fold over: a client without more is placed afterwards.
        samples = max(2, min(smallest, MOST_FINE if fine else MOST))
        folds = min(3 if samples < THREE_FOLDS else 4, samples)
        if len(tested) > 2:
            folds = 1 + math.ceil(math.log(ARRANGEMENTS) / math.log(len(tested)))
        passes = min(max(LEAST_PASSES, min(local, ENOUGH_STEPS * samples)), MOST_PASSES_FINE if fine else math.inf)
        steps = min(max(round(passes / samples), LEAST_STEPS), MOST_STEPS)
        size = samples // folds
        return cls(folds, size, steps, rate, _smaller([count // folds for count in counts], size) if tests else ())


def _smaller(most: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the sizes of further classes, of clients whose folds hold so many samples at most, in rising order."""
    sizes = [size]
    for share in SMALLER:
        of_class = [each for each in most if max(LEAST_SIZE, share * size) <= each < sizes[-1]]
        sizes += of_class[:1]
    return tuple(sizes[1:])


def _tested(counts: Sequence[int]) -> list[int]:
    """Return the sorted counts of few clients, without those that have less than half of what the median one has."""
    if len(counts) > FEW_CLIENTS:
        return []
    return [count for count in counts if count >= max(LEAST_OF_TESTED, counts[len(counts) // 2] / 2)]
