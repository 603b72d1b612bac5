"""Rows of a data set by group (class), the raw material of all label skews."""

import numpy as np

from florets.task.data.dataset import Dataset, IntArray


def rows_by_group(data: Dataset) -> tuple[list[IntArray], list[IntArray]]:
    """Return, for each group from 0 to the largest, its rows of the train set and of the test set.

    Raises
    ------
    ValueError
        If a group number is negative, or a group has no train or no test sample.
    """
    lowest = min(data.group_train.min(), data.group_test.min())
    if lowest < 0:
        raise ValueError(f"group {lowest} is negative: groups (classes) are numbered from 0.")
    num_groups = int(max(data.group_train.max(), data.group_test.max())) + 1
    train = [np.flatnonzero(data.group_train == group) for group in range(num_groups)]
    test = [np.flatnonzero(data.group_test == group) for group in range(num_groups)]
    for group in range(num_groups):
        if not len(train[group]) or not len(test[group]):
            raise ValueError(
                f"class {group} has {len(train[group])} train and {len(test[group])} test samples: partitions by "
                f"class need both of every class."
            )
    return train, test
