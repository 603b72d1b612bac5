"""One class, or one true model of synthetic data, is one cluster."""

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.groups import rows_by_group
from florets.task.partitions.shard import Shard, deal_clusters
from florets.task.registry import register_partition


@register_partition("by_class")
def by_class(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    classes: list[int] | None = None,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give cluster k all samples of class ``classes[k]``.

    Parameters
    ----------
    data
        Its groups are the classes: class labels, or the true model of each sample.
    num_clients, num_clusters
        Clients are spread evenly over the clusters and numbered cluster by cluster.
    rng
        Shuffles each cluster's samples.
    classes
        One a cluster; the first classes by default.
    samples_per_client, test_samples_per_client
        At most so many samples a client; None: all (for test: the same bound as for train).

    Raises
    ------
    ValueError
        If there are fewer classes than clusters, or `classes` does not fit.

    Source: CLoVE, Sec. 5 (unsupervised experiments) and App. D.1.1.
    """
    train, test = rows_by_group(data)
    chosen = list(range(num_clusters)) if classes is None else list(classes)
    if len(chosen) != num_clusters or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"task.partition_options.classes={chosen} must name task.num_clusters={num_clusters} different classes."
        )
    if min(chosen) < 0 or max(chosen) >= len(train):
        raise ValueError(
            f"partition by_class needs a class for each of task.num_clusters={num_clusters} clusters, but of the "
            f"classes {chosen} the data set has only 0 to {len(train) - 1}. Lower task.num_clusters."
        )
    return deal_clusters(
        [train[c] for c in chosen],
        [test[c] for c in chosen],
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
    )
