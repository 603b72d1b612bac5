"""Partitions with known true clusters: importing this package registers the built-in ones."""

from task.partitions.by_class import by_class
from task.partitions.concept_shift import concept_shift
from task.partitions.dominant_label import label_skew_4
from task.partitions.label_skew import label_skew_1, label_skew_2, label_skew_3
from task.partitions.random_clusters import random_clusters
from task.partitions.rotated_anchors import rotated_anchors
from task.partitions.rotation import rotation
from task.partitions.shard import Shard, check_shards

__all__ = [
    "Shard",
    "by_class",
    "check_shards",
    "concept_shift",
    "label_skew_1",
    "label_skew_2",
    "label_skew_3",
    "label_skew_4",
    "random_clusters",
    "rotated_anchors",
    "rotation",
]
