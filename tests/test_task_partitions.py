"""Partitions: counts beside the published figures, equal proportions, and what is refused."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.task.data import Dataset, digits, linear
from florets.task.partitions import (
    by_class,
    check_shards,
    concept_shift,
    label_skew_1,
    label_skew_2,
    label_skew_3,
    label_skew_4,
    rotation,
)
from florets.task.partitions.label_skew import overlapping_label_sets
from florets.task.partitions.shard import deal, spread

# Class sizes of MNIST: partitions look at labels alone, so that no file is needed.
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def labels_only(train_sizes, test_sizes):
    y, y_test = (np.repeat(np.arange(len(sizes)), sizes) for sizes in (train_sizes, test_sizes))
    return Dataset(np.zeros((len(y), 1, 2, 2)), y, np.zeros((len(y_test), 1, 2, 2)), y_test, len(train_sizes))


@pytest.fixture(scope="module")
def like_mnist():
    return labels_only(MNIST_TRAIN, MNIST_TEST)


def rng(seed=1):
    return np.random.default_rng(seed)


def cluster_sizes(shards, part):
    sizes = np.zeros(1 + shards[-1].cluster, dtype=int)
    for shard in shards:
        sizes[shard.cluster] += len(getattr(shard, part))
    return sizes.tolist()


def label_shares(shards, data, cluster):
    rows = np.concatenate([s.train for s in shards if s.cluster == cluster])
    test_rows = np.concatenate([s.test for s in shards if s.cluster == cluster])
    counts = np.bincount(data.y_train[rows], minlength=10), np.bincount(data.y_test[test_rows], minlength=10)
    return counts[0] / len(rows), counts[1] / len(test_rows)


def no_row_twice(shards):
    for part in ("train", "test"):
        rows = np.concatenate([getattr(shard, part) for shard in shards])
        if len(np.unique(rows)) != len(rows):
            return False
    return True


def test_clients_are_spread_as_evenly_as_possible_over_clusters():
    assert spread(20, 4) == [5, 5, 5, 5]
    assert spread(11, 4) == [3, 3, 3, 2]
    with pytest.raises(ValueError, match=r"num_clients=3 is less than task.num_clusters=4"):
        spread(3, 4)


def test_a_bound_makes_equal_parts_and_no_bound_uses_every_row():
    rows = np.arange(11)
    assert [part.tolist() for part in deal(rows, 3, 2)] == [[0, 1], [3, 4], [6, 7]]
    assert [len(part) for part in deal(rows, 3, 100)] == [3, 3, 3]
    assert np.concatenate(deal(rows, 3, None)).tolist() == rows.tolist()


def test_label_skew_1_has_the_published_figures(like_mnist):
    whole = label_skew_1(like_mnist, 25, 5, rng())
    assert cluster_sizes(whole, "train") == [12665, 12089, 11263, 12183, 11800]
    assert cluster_sizes(whole, "test") == [2115, 2042, 1874, 1986, 1983]
    shards = label_skew_1(like_mnist, 25, 5, rng(), samples_per_client=500)
    assert {len(s.train) for s in shards} == {500}
    assert (min(len(s.test) for s in shards), max(len(s.test) for s in shards)) == (374, 423)
    assert [s.cluster for s in shards] == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 5
    for shard in shards:
        assert set(like_mnist.y_train[shard.train]) == {2 * shard.cluster, 2 * shard.cluster + 1}
    assert no_row_twice(shards)


def test_label_skew_1_with_125_clients_has_the_figures_of_partial_participation(like_mnist):
    shards = label_skew_1(like_mnist, 125, 5, rng(), samples_per_client=100)
    assert {len(s.train) for s in shards} == {100}
    assert (min(len(s.test) for s in shards), max(len(s.test) for s in shards)) == (74, 84)


@pytest.mark.parametrize("seed", range(5))
def test_label_skew_2_gives_four_labels_any_two_clusters_sharing_two(like_mnist, seed):
    shards = label_skew_2(like_mnist, 25, 5, rng(seed), samples_per_client=500)
    whole = label_skew_2(like_mnist, 25, 5, rng(seed))
    sets = [set(like_mnist.y_train[np.concatenate([s.train for s in whole if s.cluster == k])]) for k in range(5)]
    assert [len(labels) for labels in sets] == [4] * 5
    assert {len(a & b) for a, b in combinations(sets, 2)} == {2}
    assert {len(s.train) for s in shards} == {500}
    assert min(cluster_sizes(whole, "train")) >= 5100
    assert no_row_twice(whole)


def test_label_skew_3_leaves_one_label_out_and_gives_the_last_cluster_all(like_mnist):
    whole = label_skew_3(like_mnist, 25, 5, rng())
    for cluster, missing in enumerate([{9}, {0}, {1}, {2}, set()]):
        rows = np.concatenate([s.train for s in whole if s.cluster == cluster])
        assert set(range(10)) - set(like_mnist.y_train[rows]) == missing
    assert min(cluster_sizes(whole, "train")) >= 6000
    assert sum(cluster_sizes(whole, "train")) == 60_000
    assert no_row_twice(whole)


@pytest.mark.parametrize("partition", [label_skew_1, label_skew_2, label_skew_3, label_skew_4, concept_shift])
def test_train_and_test_of_a_cluster_have_the_same_proportions(like_mnist, partition):
    num_clusters = 4 if partition is concept_shift else 5
    shards = partition(like_mnist, 4 * num_clusters, num_clusters, rng(2))
    for cluster in range(num_clusters):
        train, test = label_shares(shards, like_mnist, cluster)
        # Test classes of MNIST are not exact sixths of train classes, hence the slack.
        assert 0.5 * np.abs(train - test).sum() < 0.03


@pytest.mark.parametrize("partition", [label_skew_2, label_skew_3])
def test_fresh_shares_of_the_test_data_are_those_of_another_draw(like_mnist, partition):
    same, fresh = (partition(like_mnist, 20, 5, rng(2), test_shares=shares) for shares in ("same", "fresh"))
    assert cluster_sizes(same, "train") == cluster_sizes(fresh, "train")
    assert cluster_sizes(same, "test") != cluster_sizes(fresh, "test")
    apart = [np.abs(np.subtract(*label_shares(fresh, like_mnist, cluster))).sum() / 2 for cluster in range(5)]
    assert max(apart) > 0.15
    assert no_row_twice(fresh)


def test_label_skew_4_has_the_published_figures(like_mnist):
    whole = label_skew_4(like_mnist, 50, 10, rng())
    assert cluster_sizes(whole, "train") == [3248 + 9 * 181] * 10 == [4877] * 10
    assert cluster_sizes(whole, "test") == [534 + 9 * 29] * 10 == [795] * 10
    shards = label_skew_4(like_mnist, 50, 10, rng(), samples_per_client=500)
    assert {len(s.train) for s in shards} == {500}
    assert {len(s.test) for s in shards} == {159}
    train, _ = label_shares(whole, like_mnist, 7)
    assert train[7] == pytest.approx(3248 / 4877)
    assert no_row_twice(whole)


def test_concept_shift_has_the_published_figures_and_swaps(like_mnist):
    shards = concept_shift(like_mnist, 20, 4, rng(), samples_per_client=1000)
    whole = concept_shift(like_mnist, 20, 4, rng())
    assert cluster_sizes(whole, "train") == [12_500] * 4
    assert cluster_sizes(whole, "test") == [2_000] * 4
    assert {(len(s.train), len(s.test)) for s in shards} == {(1000, 400)}
    assert no_row_twice(whole)
    expected = [
        [3, 1, 2, 0, 4, 5, 6, 7, 9, 8],
        [0, 4, 2, 3, 1, 5, 9, 7, 8, 6],
        [0, 2, 1, 6, 4, 5, 3, 7, 8, 9],
        [0, 1, 2, 5, 7, 3, 6, 4, 8, 9],
    ]
    for cluster, renamed in enumerate(expected):
        x, y = np.zeros((10, 1)), np.arange(10)
        assert shards[5 * cluster].transform(x, y)[1].tolist() == renamed


def test_concept_shift_with_more_clusters_draws_different_swaps():
    shards = concept_shift(digits(None, 0, 0), 12, 6, rng())
    names = {tuple(s.transform(np.zeros(10), np.arange(10))[1]) for s in shards}
    assert len(names) == 6


def test_by_class_gives_each_cluster_one_class_or_one_true_model():
    data = linear(None, 1, 5)
    shards = by_class(data, 25, 5, rng())
    assert {(len(s.train), len(s.test)) for s in shards} == {(900, 100)}
    for shard in shards:
        assert set(data.group_train[shard.train]) == {shard.cluster} == set(data.group_test[shard.test])
    chosen = by_class(digits(None, 0, 0), 4, 2, rng(), classes=[7, 3])
    assert {int(digits(None, 0, 0).y_train[s.train[0]]) for s in chosen} == {7, 3}


def test_rotation_turns_by_quarters_counter_clockwise():
    image = np.array([[[[0, 1], [2, 3]]]], dtype=np.float32)
    data = Dataset(np.repeat(image, 8, axis=0), np.zeros(8, int), np.repeat(image, 8, axis=0), np.zeros(8, int), 1)
    shards = rotation(data, 4, 4, rng(), split="shared")
    turned = [image if s.transform is None else s.transform(image, np.zeros(1))[0] for s in shards]
    assert [t[0, 0].tolist() for t in turned] == [
        [[0, 1], [2, 3]],
        [[1, 3], [0, 2]],
        [[3, 2], [1, 0]],
        [[2, 0], [3, 1]],
    ]


def test_other_angles_turn_the_same_way_as_quarter_turns():
    data = digits(None, 0, 4)
    shards = rotation(data, 2, 2, rng(), angles=[89.999, 90])
    x = data.x_train[:20]
    nearly, exactly = (shard.transform(x, x)[0] for shard in shards)
    assert nearly.dtype == np.float32
    # Corners may fall out of an image turned by other than quarter turns.
    np.testing.assert_allclose(nearly[..., 1:-1, 1:-1], exactly[..., 1:-1, 1:-1], atol=1e-2)


def test_a_shared_split_is_the_same_in_every_cluster_and_uses_all_samples():
    shards = rotation(digits(None, 0, 4), 20, 4, rng(), split="shared")
    for client in range(5):
        for cluster in range(1, 4):
            np.testing.assert_array_equal(shards[client].train, shards[client + 5 * cluster].train)
            np.testing.assert_array_equal(shards[client].test, shards[client + 5 * cluster].test)
    assert sorted(np.concatenate([s.train for s in shards[:5]])) == list(range(1438))
    assert sorted(np.concatenate([s.test for s in shards[:5]])) == list(range(359))


def test_an_independent_split_copies_all_samples_and_a_disjoint_one_none(like_mnist):
    copies = rotation(like_mnist, 40, 4, rng())
    assert cluster_sizes(copies, "train") == [60_000] * 4
    assert copies[0].train.tolist() != copies[10].train.tolist()
    published = rotation(like_mnist, 40, 4, rng(), samples_per_client=500)
    assert {(len(s.train), len(s.test)) for s in published} == {(500, 500)}
    parts = rotation(like_mnist, 40, 4, rng(), split="disjoint")
    assert cluster_sizes(parts, "train") == [15_000] * 4
    assert no_row_twice(parts)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_label_sets_are_found_for_every_seed(seed):
    sets = overlapping_label_sets(10, 5, 4, 2, rng(seed))
    assert {len(set(a) & set(b)) for a, b in combinations(sets, 2)} == {2}


def test_label_sets_that_cannot_be_end_with_an_error():
    with pytest.raises(ValueError, match="no 9 sets of 4 out of 10 labels"):
        overlapping_label_sets(10, 9, 4, 2, rng())


@pytest.mark.parametrize("name", ["label_skew_1", "label_skew_2", "label_skew_3", "rotation", "concept_shift"])
def test_the_same_seed_gives_the_same_partition(name):
    from florets.task.registry import resolve

    partition, data = resolve("partition", name), digits(None, 0, 4)
    first, again, other = (partition(data, 12, 4, rng(seed)) for seed in (5, 5, 6))
    assert all((a.train == b.train).all() and (a.test == b.test).all() for a, b in zip(first, again, strict=True))
    assert any(a.train.tolist() != b.train.tolist() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: label_skew_1(data, 12, 6, rng()), "needs 12 classes .* has 10"),
        (lambda data: label_skew_3(data, 20, 12, rng()), "needs 11 classes"),
        (lambda data: label_skew_3(data, 10, 5, rng(), min_share=1.0), "lower min_share"),
        (lambda data: label_skew_2(data, 10, 5, rng(), alpha=0.0), "alpha=0.0 must be above 0"),
        (lambda data: label_skew_2(data, 10, 5, rng(), test_shares="new"), "test_shares=new must be same or fresh"),
        (lambda data: label_skew_4(data, 20, 11, rng()), "needs a class for each of task.num_clusters=11"),
        (lambda data: by_class(data, 20, 11, rng()), "has only 0 to 9"),
        (lambda data: by_class(data, 4, 2, rng(), classes=[1, 1]), "2 different classes"),
        (lambda data: concept_shift(data, 4, 1, rng(), swaps=[[[0, 0]]]), "each label at most once"),
        (lambda data: rotation(data, 4, 4, rng(), angles=[0, 90]), "angles has length 2"),
        (lambda data: rotation(linear(None, 1, 2), 4, 2, rng()), "needs images"),
        (lambda data: rotation(data, 4, 4, rng(), samples_per_client=0), "samples_per_client=0 must be at least 1"),
        (lambda data: concept_shift(linear(None, 1, 2), 4, 2, rng()), "needs class labels"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make(digits(None, 0, 4))


@pytest.mark.parametrize("split", ["shared", "independent"])
def test_more_clients_than_samples_are_refused_with_the_most_that_there_can_be(split):
    data = digits(None, 0, 4)
    told = r"num_clients=1437: cluster 0 has 359 test samples, .* at most 1436, .*composed .*reuse=clients"
    with pytest.raises(ValueError, match=told):
        rotation(data, 1437, 4, rng(), split=split)
    check_shards(rotation(data, 1436, 4, rng(), split=split), data, 1436)


def test_the_most_clients_count_the_first_clusters_that_have_one_more():
    data = labels_only([3, 2, 9], [9, 9, 9])
    check_shards(label_skew_1(data, 7, 3, rng(), labels_per_cluster=1), data, 7)
    with pytest.raises(ValueError, match=r"num_clients=8: cluster 1 has 2 train samples, .* of at most 7, "):
        label_skew_1(data, 8, 3, rng(), labels_per_cluster=1)


def test_a_client_without_samples_is_refused():
    data = labels_only([3, 3], [3, 3])
    shards = label_skew_1(data, 2, 2, rng(), labels_per_cluster=1)
    shards[1] = dataclasses.replace(shards[1], test=shards[1].test[:0])
    told = r"client 1 \(cluster 1\) gets no test sample: the test set's 6 .*Lower num_clients, or .*reuse=clients"
    with pytest.raises(ValueError, match=told):
        check_shards(shards, data, 2)


def test_a_row_that_is_not_there_and_a_missing_shard_are_refused():
    data = labels_only([3, 3], [3, 3])
    shards = label_skew_1(data, 2, 2, rng(), labels_per_cluster=1)
    with pytest.raises(ValueError, match="gives 2 shards for num_clients=3"):
        check_shards(shards, data, 3)
    with pytest.raises(ValueError, match="but the train set has 2 rows"):
        check_shards(shards, labels_only([1, 1], [3, 3]), 2)
