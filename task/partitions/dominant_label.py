"""Label skew 4: every cluster has all classes, one of which dominates."""

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.groups import rows_by_group
from florets.task.partitions.shard import Shard, deal_clusters
from florets.task.registry import register_partition


@register_partition("label_skew_4")
def label_skew_4(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    own_share: float = 0.666,
    used_share: float = 0.9,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give cluster k two thirds samples of class k, and one third of all other classes in equal parts.

    Parameters
    ----------
    data, num_clients, num_clusters, samples_per_client, test_samples_per_client
        See `florets.task.partitions.label_skew.label_skew_1`. There are as many clusters as classes, or fewer.
    rng
        Draws the samples.
    own_share
        Share of the dominant class, between 0 and 1.
    used_share
        A cluster's size, as a share of the smallest class, above 0 and at most 1.

    Raises
    ------
    ValueError
        If there are more clusters than classes, or an option is out of its range.

    Notes
    -----
    No Dirichlet draw: proportions are fixed, and equal in train and test but for rounding.
    Deviation: the paper takes the third from all classes, its code from the others alone, and so does this.

    Source: CLoVE, App. D.1.2, "Label skew 4".
    """
    train, test = rows_by_group(data)
    if num_clusters > len(train) or len(train) < 2:
        raise ValueError(
            f"partition label_skew_4 needs a class for each of task.num_clusters={num_clusters} clusters (and at "
            f"least 2), but the data set has {len(train)}. Lower task.num_clusters."
        )
    if not 0 < own_share < 1 or not 0 < used_share <= 1:
        raise ValueError(
            f"task.partition_options own_share={own_share} must be between 0 and 1, and used_share={used_share} "
            f"above 0 and at most 1."
        )
    return deal_clusters(
        _mixed(train, num_clusters, own_share, used_share, rng),
        _mixed(test, num_clusters, own_share, used_share, rng),
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
    )


def _mixed(
    rows: list[IntArray], num_clusters: int, own_share: float, used_share: float, rng: np.random.Generator
) -> list[IntArray]:
    """Return the rows of each cluster, no row twice."""
    size = int(used_share * min(len(of_class) for of_class in rows))
    own = int(own_share * size)
    other = (size - own) // (len(rows) - 1)
    parts: list[list[IntArray]] = [[] for _ in range(num_clusters)]
    for label, of_class in enumerate(rows):
        # A class gives at most own + (K - 1) other <= size rows, and size is within the smallest class.
        counts = [own if cluster == label else other for cluster in range(num_clusters)]
        pieces = np.split(rng.permutation(of_class), np.cumsum(counts))
        for part, piece in zip(parts, pieces, strict=False):
            part.append(piece)
    return [np.concatenate(part) for part in parts]
