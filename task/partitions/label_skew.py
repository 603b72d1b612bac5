"""Label skews 1 to 3: clusters own sets of classes that overlap not at all, by half, or nearly wholly."""

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.dirichlet import divide
from florets.task.partitions.groups import rows_by_group
from florets.task.partitions.label_sets import overlapping_label_sets
from florets.task.partitions.shard import Shard, deal_clusters
from florets.task.registry import register_partition


@register_partition("label_skew_1")
def label_skew_1(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    labels_per_cluster: int = 2,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give every cluster classes of its own: {0, 1}, {2, 3}, and so on.

    Parameters
    ----------
    data
        Its groups are the classes.
    num_clients, num_clusters
        Clients are spread evenly over the clusters and numbered cluster by cluster.
    rng
        Shuffles each cluster's samples.
    labels_per_cluster
        Classes a cluster.
    samples_per_client, test_samples_per_client
        At most so many samples a client; None: all (for test: the same bound as for train).
        The paper has 500.

    Raises
    ------
    ValueError
        If there are too few classes.

    Notes
    -----
    The paper's Dirichlet draw has no effect here: each class has one owner.

    Source: CLoVE, Sec. 5, "Label skew 1".
    """
    train, test = rows_by_group(data)
    if labels_per_cluster < 1 or labels_per_cluster * num_clusters > len(train):
        raise ValueError(
            f"task.partition_options.labels_per_cluster={labels_per_cluster} with task.num_clusters={num_clusters} "
            f"needs {labels_per_cluster * num_clusters} classes (and at least 1 a cluster), but the data set has "
            f"{len(train)}. Lower one of them."
        )
    sets = np.arange(labels_per_cluster * num_clusters).reshape(num_clusters, labels_per_cluster)
    return deal_clusters(
        [np.concatenate([train[label] for label in labels]) for labels in sets],
        [np.concatenate([test[label] for label in labels]) for labels in sets],
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
    )


@register_partition("label_skew_2")
def label_skew_2(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    labels_per_cluster: int = 4,
    shared_labels: int = 2,
    label_sets: list[list[int]] | None = None,
    alpha: float = 0.5,
    reserve: float = 0.1,
    min_share: float = 0.425,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
    test_shares: str = "same",
) -> list[Shard]:
    """Give every cluster 4 random classes, any two clusters sharing exactly 2.

    Parameters
    ----------
    data, num_clients, num_clusters, samples_per_client, test_samples_per_client
        See `label_skew_1`.
    rng
        Draws the label sets, the proportions and the samples.
    labels_per_cluster, shared_labels
        Classes a cluster, and in common.
    label_sets
        The classes of each cluster, where they are not to be drawn; the two options above are then not used.
    alpha, reserve, min_share, test_shares
        See `florets.task.partitions.dirichlet.divide`. The default minimum is the published 5,100 of MNIST's 60,000.

    Raises
    ------
    ValueError
        If no such label sets are found, or an option is out of its range.

    Notes
    -----
    Deviation: the paper says "at least" 2 in common; its code has exactly 2, and so has this. The search for the
    sets always ends, and one Dirichlet draw serves train and test; the published code does neither
    (``test_shares=fresh`` draws as it does).

    Source: CLoVE, Sec. 5, "Label skew 2" (U = 4, V = 2).
    """
    num_labels = len(rows_by_group(data)[0])
    if label_sets is not None:
        _check_sets(label_sets, num_labels, num_clusters)
        train, test = divide(data, label_sets, rng, alpha, reserve, min_share, test_shares)
        return deal_clusters(train, test, num_clients, rng, samples_per_client, test_samples_per_client)
    if not 0 <= shared_labels <= labels_per_cluster <= num_labels or labels_per_cluster < 1:
        raise ValueError(
            f"task.partition_options shared_labels={shared_labels} and labels_per_cluster={labels_per_cluster} must "
            f"be in order, and at most the data set's {num_labels} classes."
        )
    sets = overlapping_label_sets(num_labels, num_clusters, labels_per_cluster, shared_labels, rng)
    train, test = divide(data, sets, rng, alpha, reserve, min_share, test_shares)
    return deal_clusters(train, test, num_clients, rng, samples_per_client, test_samples_per_client)


def _check_sets(label_sets: list[list[int]], num_labels: int, num_clusters: int) -> None:
    fits = len(label_sets) == num_clusters and all(
        labels and len(set(labels)) == len(labels) and min(labels) >= 0 and max(labels) < num_labels
        for labels in label_sets
    )
    if not fits:
        raise ValueError(
            f"task.partition_options.label_sets={label_sets} must give task.num_clusters={num_clusters} lists of "
            f"different classes, each from 0 to {num_labels - 1}."
        )


@register_partition("label_skew_3")
def label_skew_3(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    alpha: float = 0.5,
    reserve: float = 0.1,
    min_share: float = 0.5,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
    test_shares: str = "same",
) -> list[Shard]:
    """Give every cluster all classes but one, and the last cluster all: without 9, without 0, 1, 2, all.

    Parameters
    ----------
    data, num_clients, num_clusters, samples_per_client, test_samples_per_client
        See `label_skew_1`.
    rng
        Draws the proportions and the samples.
    alpha, reserve, min_share, test_shares
        See `florets.task.partitions.dirichlet.divide`. The default minimum is the published 6,000 of MNIST's 60,000.

    Raises
    ------
    ValueError
        If there are more clusters than classes + 1, or an option is out of its range.

    Notes
    -----
    Deviation: one Dirichlet draw serves train and test (see `divide`).

    Source: CLoVE, App. D.1.2, "Label skew 3".
    """
    num_labels = len(rows_by_group(data)[0])
    if num_labels < 2 or num_clusters > num_labels + 1:
        raise ValueError(
            f"partition label_skew_3 with task.num_clusters={num_clusters} needs {max(num_clusters - 1, 2)} classes, "
            f"but the data set has {num_labels}. Lower task.num_clusters."
        )
    absent = [(k - 1) % num_labels for k in range(num_clusters - 1)]
    sets = [[label for label in range(num_labels) if label != missing] for missing in [*absent, None]]
    train, test = divide(data, sets, rng, alpha, reserve, min_share, test_shares)
    return deal_clusters(train, test, num_clients, rng, samples_per_client, test_samples_per_client)
