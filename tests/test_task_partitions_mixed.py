"""The partitions of mixed regression: drawn clusters of clients of different sizes, and anchors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.task.data import Dataset, linear
from florets.task.partitions import check_shards, random_clusters, rotated_anchors


@pytest.fixture(scope="module")
def regression():
    return linear(None, 0, 3, d=2, samples_per_cluster=1000, train_share=0.6)


def images(num_train, num_test):
    x, z = (np.arange(n * 4, dtype=float).reshape(n, 1, 2, 2) for n in (num_train, num_test))
    return Dataset(x, np.zeros(num_train, dtype=int), z, np.zeros(num_test, dtype=int), num_outputs=1)


def rng(seed=1):
    return np.random.default_rng(seed)


def all_rows(shards, part):
    return np.concatenate([getattr(shard, part) for shard in shards])


def test_clients_have_the_sizes_asked_for_and_rows_of_their_own_cluster(regression):
    shards = random_clusters(regression, 25, 3, rng(), clients=[[20, 10], [5, 50]], test_samples_per_client=4)
    check_shards(shards, regression, 25)
    assert [len(shard.train) for shard in shards] == [10] * 20 + [50] * 5
    assert {len(shard.test) for shard in shards} == {4}
    for shard in shards:
        assert set(regression.group_train[shard.train]) == {shard.cluster} == set(regression.group_test[shard.test])
    for part in ("train", "test"):
        assert len(np.unique(all_rows(shards, part))) == len(all_rows(shards, part))
    assert [s.cluster for s in random_clusters(regression, 25, 3, rng(), clients=[[25, 5]])] == [
        s.cluster for s in shards
    ]


def test_clusters_are_drawn_with_their_probabilities(regression):
    shards = random_clusters(
        regression, 300, 3, rng(), clients=[[300, 1]], probabilities=[0.0, 0.3, 0.7], test_samples_per_client=1
    )
    shares = np.bincount([shard.cluster for shard in shards], minlength=3) / 300
    np.testing.assert_allclose(shares, [0, 0.3, 0.7], atol=0.08)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": [[5, 2]]}, r"num_clients=6: use num_clients=5, or .*clients=\[\[6,2\]\]"),
        ({"clients": [[90, 2], [4, 3], [20, 1]]}, r"or task.partition_options.clients=\[\[4,2\],\[1,3\],\[1,1\]\]"),
        (
            {"clients": [[9, 1], [9, 2], [1, 3], [1, 4], [1, 5]]},
            r"clients=\[\[1,1\],\[2,2\],\[1,3\],\[1,4\],\[1,5\]\]",
        ),
        ({"clients": [[1, size] for size in range(1, 9)]}, r"clients=\[\[1,1\],.*\[1,6\]\]\."),
        ({"clients": [[6]]}, "must be pairs"),
        ({"clients": [[6, 0]]}, "must be pairs"),
        ({"clients": [[6, 2]], "probabilities": [0.5, 0.5]}, "one share for each of task.num_clusters=3"),
        ({"clients": [[6, 2]], "probabilities": [0.5, 0.4, 0.2]}, "adding up to 1"),
        ({"clients": [[6, 500]]}, "need .* train samples, but it has 600: raise task.data_options.samples_per_c"),
        ({"clients": [[6, 2]], "test_samples_per_client": 300}, "test samples, but it has 400"),
        ({"clients": [[6, 2]], "test_samples_per_client": 0}, "test_samples_per_client=0 must be at least 1"),
    ],
)
def test_clients_that_do_not_fit_are_refused(regression, options, message):
    with pytest.raises(ValueError, match=message):
        random_clusters(regression, 6, 3, rng(), **options)


def test_groups_and_clusters_must_be_as_many(regression):
    with pytest.raises(ValueError, match=r"3 groups, but task\.num_clusters=2"):
        random_clusters(regression, 6, 2, rng(), clients=[[6, 2]])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12))
def test_anchors_come_first_and_no_image_is_dealt_twice(num_clusters, others):
    data, num_clients = images(200, 15), num_clusters + others
    shards = rotated_anchors(data, num_clients, num_clusters, rng(), anchor_samples=7, test_samples_per_client=3)
    check_shards(shards, data, num_clients)
    assert [(s.cluster, len(s.train), len(s.test)) for s in shards[:num_clusters]] == [
        (k, 7, 15) for k in range(num_clusters)
    ]
    assert {(len(s.train), len(s.test)) for s in shards[num_clusters:]} <= {(2, 3)}
    assert len(np.unique(all_rows(shards, "train"))) == num_clusters * 7 + others * 2
    assert all(len(np.unique(s.test)) == len(s.test) for s in shards)
    sizes = np.bincount([s.cluster for s in shards], minlength=num_clusters)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    ("num_clusters", "angles", "expected"),
    [(2, None, [0, 1]), (4, None, [0, 1, 2, 3]), (2, [90, 180], [1, 2])],
)
def test_the_images_of_a_cluster_are_turned_by_its_angle(num_clusters, angles, expected):
    data = images(100, 10)
    for shard, turns in zip(
        rotated_anchors(data, num_clusters, num_clusters, rng(), angles=angles), expected, strict=True
    ):
        x = data.x_train[shard.train]
        turned = shard.transform(x, None)[0] if shard.transform else x
        np.testing.assert_array_equal(turned, np.rot90(x, turns, axes=(2, 3)))


def test_more_images_than_there_are_cannot_be_dealt():
    with pytest.raises(ValueError, match=r"num_clients=22 need 80 train images .* the data have 79 and 5"):
        rotated_anchors(images(79, 5), 22, 2, rng(), test_samples_per_client=5)
    with pytest.raises(ValueError, match="angles has length 1"):
        rotated_anchors(images(79, 5), 4, 2, rng(), angles=[90])
    with pytest.raises(ValueError, match="anchor_samples=0"):
        rotated_anchors(images(79, 5), 4, 2, rng(), anchor_samples=0, test_samples_per_client=2)
