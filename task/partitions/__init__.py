"""Partitions with known true clusters: importing this package registers the built-in ones.

What they share, unless one says otherwise: they go by the data set's groups, its classes or the true model of each
sample; clients are spread evenly over the clusters and numbered cluster by cluster; `rng` draws all that is random;
a client has at most `samples_per_client` and `test_samples_per_client` samples; None: all (for test: the same bound
as for train). Options, numbers of clients or clusters and data that do not fit raise ValueError with the remedy.
"""

from florets.task.partitions.composed import composed
from florets.task.partitions.concept_shift import concept_shift
from florets.task.partitions.label_counts import label_counts, n_way
from florets.task.partitions.label_skew import label_skew_1, label_skew_2, label_skew_3, label_skew_4
from florets.task.partitions.natural import by_class, natural, random_clusters
from florets.task.partitions.own import own
from florets.task.partitions.rotation import rotated_anchors, rotation, rotation_blocks, rotation_mixture
from florets.task.partitions.shard import Shard, check_shards

__all__ = [
    "Shard",
    "by_class",
    "check_shards",
    "composed",
    "concept_shift",
    "label_counts",
    "label_skew_1",
    "label_skew_2",
    "label_skew_3",
    "label_skew_4",
    "n_way",
    "natural",
    "own",
    "random_clusters",
    "rotated_anchors",
    "rotation",
    "rotation_blocks",
    "rotation_mixture",
]
