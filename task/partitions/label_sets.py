"""Random label sets that overlap by an exact number of labels."""

from itertools import combinations

import numpy as np

# With at most this many labels there are at most 924 sets of one size, so that a search stays short.
MOST_LABELS = 12
# Sets looked at before giving up: a search ends in well under a second, whatever is asked.
MOST_STEPS = 20_000


def overlapping_label_sets(
    num_labels: int, num_sets: int, labels_per_set: int, shared: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Draw label sets of equal size, any two of which share exactly `shared` labels.

    A random search with backtracking: the published code draws sets until they fit, and for about 1 % of the seeds
    its first sets leave no other to be found, so that it never ends.

    Parameters
    ----------
    num_labels
        Labels are 0 to `num_labels` - 1; of more than 12, a random 12 are used.
    num_sets, labels_per_set, shared
        What is asked for.
    rng
        Draws.

    Returns
    -------
    list of tuple of int
        Sets, each sorted.

    Raises
    ------
    ValueError
        If no such family is found within a bounded number of steps.
    """
    labels = rng.permutation(num_labels)[:MOST_LABELS]
    every = [frozenset(int(label) for label in chosen) for chosen in combinations(labels, labels_per_set)]
    steps = 0

    def extend(family: list[frozenset[int]], candidates: list[frozenset[int]]) -> list[frozenset[int]] | None:
        nonlocal steps
        if len(family) == num_sets:
            return family
        if len(family) + len(candidates) < num_sets:
            return None
        for position in rng.permutation(len(candidates)):
            steps += 1
            if steps > MOST_STEPS:
                return None
            chosen = candidates[position]
            fitting = [other for other in candidates if len(other & chosen) == shared and other != chosen]
            found = extend([*family, chosen], fitting)
            if found is not None:
                return found
        return None

    family = extend([], every)
    if family is None:
        raise ValueError(
            f"no {num_sets} sets of {labels_per_set} out of {num_labels} labels, any two sharing exactly {shared}, "
            f"were found: lower task.num_clusters, or change labels_per_cluster and shared_labels in "
            f"task.partition_options."
        )
    return [tuple(sorted(chosen)) for chosen in family]
