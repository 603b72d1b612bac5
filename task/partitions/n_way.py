"""n-way k-shot clients: each has a few labels of its own, and about as many samples of each; no groups."""

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.groups import rows_by_group
from florets.task.partitions.shard import Shard
from florets.task.registry import register_partition


@register_partition("n_way")
def n_way(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    ways: int = 3,
    ways_spread: int = 1,
    shots: int = 100,
    shots_spread: int = 0,
    test_shots: int = 15,
) -> list[Shard]:
    """Draw each client's labels, and how many samples it has of each.

    Parameters
    ----------
    data
        Its groups are the labels.
    num_clients, num_clusters
        There are no groups: `num_clusters` must be 1.
    rng
        Draws all.
    ways, ways_spread
        A client's number of labels is uniform from `ways` - `ways_spread` to `ways` + `ways_spread`, but at least 1
        and at most the data set's. Its labels are a random set of that size.
    shots, shots_spread
        Its number of train samples of each of its labels, uniform from `shots` - `shots_spread` to the sum of both.
    test_shots
        Test samples of each of its labels.

    Returns
    -------
    list of Shard
        A client has no sample twice; two clients may have the same one.

    Raises
    ------
    ValueError
        If an option is out of its range, or a label has too few samples for one client.

    Source: FedProto (arXiv 2105.00243), its heterogeneous clients in n ways and k shots.
    Deviation: numbers of labels and samples are uniform around their mean, where the paper has a standard deviation;
    two clients may share samples.
    """
    train, test = rows_by_group(data)
    fewest_train, fewest_test = (min(map(len, cells)) for cells in (train, test))
    given = (
        ("ways", ways, 1, len(train), "the data set's labels"),
        ("ways_spread", ways_spread, 0, len(train), "the data set's labels"),
        ("shots", shots, 1, fewest_train, "the smallest label's train samples"),
        ("shots_spread", shots_spread, 0, min(shots - 1, fewest_train - shots), "shots less one, and what is left"),
        ("test_shots", test_shots, 1, fewest_test, "the smallest label's test samples"),
    )
    for name, value, least, most, what in given:
        if not least <= value <= most:
            raise ValueError(f"task.partition_options.{name}={value} must be from {least} to {most} ({what}).")
    if num_clusters != 1:
        raise ValueError(f"task.num_clusters={num_clusters}: clients of the partition n_way form no groups; use 1.")
    shards = []
    for _ in range(num_clients):
        number = int(rng.integers(max(1, ways - ways_spread), min(len(train), ways + ways_spread) + 1))
        labels = rng.choice(len(train), size=number, replace=False)
        amount = int(rng.integers(shots - shots_spread, shots + shots_spread + 1))
        mine, tested = (
            np.concatenate([rng.choice(cells[label], size=size, replace=False) for label in labels])
            for cells, size in ((train, amount), (test, test_shots))
        )
        shards.append(Shard(0, mine, tested))
    return shards
