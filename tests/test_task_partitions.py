"""Partitions: published figures, equal proportions, angles and blocks, and what is refused."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.task.data.dataset import Dataset, pool
from florets.task.data.own import own
from florets.task.data.public_images import digits
from florets.task.data.regression import linear, lines
from florets.task.partitions.label_counts import label_counts, n_way
from florets.task.partitions.label_skew import (
    concept_shift,
    label_skew_1,
    label_skew_2,
    label_skew_3,
    label_skew_4,
    overlapping_label_sets,
)
from florets.task.partitions.natural import by_class, natural, random_clusters
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.rotation import rotated_anchors, rotation, rotation_blocks, rotation_mixture, turned
from florets.task.partitions.shard import check_shards
from florets.task.task import Task, TaskSpec
from tests.test_task_composed import numbered

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


def test_by_class_gives_each_cluster_one_class_or_one_true_model():
    data = linear(None, 1, 5)
    shards = by_class(data, 25, 5, rng())
    assert {(len(s.train), len(s.test)) for s in shards} == {(900, 100)}
    for shard in shards:
        assert set(data.group_train[shard.train]) == {shard.cluster} == set(data.group_test[shard.test])


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


def test_a_shared_split_is_the_same_in_every_cluster_and_uses_all_samples():
    shards = rotation(digits(None, 0, 4), 20, 4, rng(), split="shared")
    for client in range(5):
        for cluster in range(1, 4):
            np.testing.assert_array_equal(shards[client].train, shards[client + 5 * cluster].train)
            np.testing.assert_array_equal(shards[client].test, shards[client + 5 * cluster].test)
    assert sorted(np.concatenate([s.train for s in shards[:5]])) == list(range(1438))
    assert sorted(np.concatenate([s.test for s in shards[:5]])) == list(range(359))


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_label_sets_are_found_for_every_seed(seed):
    sets = overlapping_label_sets(10, 5, 4, 2, rng(seed))
    assert {len(set(a) & set(b)) for a, b in combinations(sets, 2)} == {2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: label_skew_1(data, 12, 6, rng()), "needs 12 classes, .* has 10"),
        (lambda data: rotation(linear(None, 1, 2), 4, 2, rng()), "needs images"),
        (lambda data: concept_shift(linear(None, 1, 2), 4, 2, rng()), "is for class labels, 10 of them"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make(digits(None, 0, 4))


DATA = numbered()


def labels(shards, part="train"):
    y = DATA.y_train if part == "train" else DATA.y_test
    return np.array([np.bincount(y[getattr(shard, part)], minlength=10) for shard in shards])


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    table=st.lists(st.lists(st.integers(0, 6), min_size=10, max_size=10).filter(any), min_size=1, max_size=3),
    clients=st.integers(3, 6),
)
def test_every_client_has_its_clusters_counts_and_no_sample_is_dealt_twice(seed, table, clients):
    shards = label_counts(DATA, clients, len(table), rng(seed), counts=table)
    check_shards(shards, DATA, clients)
    np.testing.assert_array_equal(labels(shards), [table[shard.cluster] for shard in shards])
    dealt = np.concatenate([shard.train for shard in shards])
    assert len(np.unique(dealt)) == len(dealt)
    for shard, tested in zip(shards, labels(shards, "test"), strict=True):
        counts = np.array(table[shard.cluster])
        number = max(1, round(counts.sum() / 4))
        assert tested.sum() == number == len(np.unique(shard.test))
        # Largest remainders: no label is off by a whole sample.
        assert np.abs(tested - number * counts / counts.sum()).max() < 1


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"asks for 41 train samples of label 9 .* the data set has 40"):
        label_counts(DATA, 2, 2, rng(), counts=[[4, 4, *[0] * 8], [0, 1, *[0] * 7, 41]])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), ways=st.integers(1, 10), ways_spread=st.integers(0, 3), shots=st.integers(4, 30))
def test_n_way_clients_have_as_many_samples_of_each_of_their_labels(seed, ways, ways_spread, shots):
    options = {"ways": ways, "ways_spread": ways_spread, "shots": shots}
    shards = n_way(DATA, 6, 1, rng(seed), **options, test_shots=5)
    check_shards(shards, DATA, 6)
    for shard, trained, tested in zip(shards, labels(shards), labels(shards, "test"), strict=True):
        number = np.count_nonzero(trained)
        assert max(1, ways - ways_spread) <= number <= min(10, ways + ways_spread)
        (amount,) = set(trained[trained > 0])
        assert amount == shots
        np.testing.assert_array_equal(tested, np.where(trained > 0, 5, 0))
        assert len(np.unique(shard.train)) == len(shard.train) == number * amount
        assert shard.cluster == 0


@pytest.fixture(scope="module")
def regression():
    return linear(None, 0, 3, d=2, samples_per_cluster=1000, train_share=0.6)


def images(num_train, num_test):
    x, z = (np.arange(n * 4, dtype=float).reshape(n, 1, 2, 2) for n in (num_train, num_test))
    return Dataset(x, np.zeros(num_train, dtype=int), z, np.zeros(num_test, dtype=int), num_outputs=1)


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


@settings(max_examples=10, deadline=None)
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


OWNERS = np.repeat(["anna", "ben", "cleo", "dora"], [6, 4, 1, 9])
TESTERS = np.array(["ben", "anna", "dora", "cleo", "dora", "anna"])


def of_owners(owners=OWNERS, testers=TESTERS):
    x, z = (np.random.default_rng(0).random((len(names), 1, 4, 4)) for names in (owners, testers))
    y, w = (np.arange(len(names)) % 3 for names in (owners, testers))
    return Dataset(x, y, z, w, num_outputs=3, owners_train=owners, owners_test=testers)


def made(num_clients, num_clusters=0, data=None, seed=0, **options):
    data = of_owners() if data is None else data
    shards = natural(data, num_clients, num_clusters, np.random.default_rng(seed), **options)
    check_shards(shards, data, num_clients)
    return shards


def test_each_owner_with_enough_samples_is_a_client_whose_cluster_is_not_known():
    shards = made(3)
    assert [set(OWNERS[s.train]) for s in shards] == [set(TESTERS[s.test]) for s in shards]
    assert [OWNERS[s.train[0]] for s in shards] == ["anna", "ben", "dora"]
    assert [s.name for s in shards] == ["anna", "ben", "dora"]
    assert [len(s.train) for s in shards] == [6, 4, 9]
    assert {s.cluster for s in shards} == {UNKNOWN_CLUSTER}


def test_a_column_of_a_table_says_whose_a_line_is_and_is_no_input(tmp_path):
    lines = [f"{40 + i % 2},{'north' if i % 2 else 'south'},{i / 7},{i % 2}" for i in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["age,site,dose,ill", *lines]), encoding="utf-8")
    table = {"declared": {"owner": "site", "columns": ["age", "dose"]}}
    data = own(tmp_path, 0, 0, table=table)
    assert data.input_shape == (2,)
    for x, owners in ((data.x_train, data.owners_train), (data.x_test, data.owners_test)):
        assert [age > 0 for age in x[:, 0]] == [owner == "north" for owner in owners]
    spec = TaskSpec("own", "natural", "mlp", "cross_entropy", 2, 0, 0, str(tmp_path), table=table)
    task = Task(spec)
    assert all(age > 0 for age in task.client(0).x_train[:, 0].tolist())
    assert task.cluster_of(1) == UNKNOWN_CLUSTER
    assert task.client_names == {0: "north", 1: "south"}


def test_a_client_without_samples_is_refused():
    data = labels_only([2, 1, 2, 1], [2, 1, 2, 1])
    shards = label_skew_1(data, 2, 2, rng())
    shards[1] = dataclasses.replace(shards[1], test=shards[1].test[:0])
    told = r"client 1 \(cluster 1\) gets no test sample: the test set's 6 .*Lower num_clients, or .*reuse=clients"
    with pytest.raises(ValueError, match=told):
        check_shards(shards, data, 2)


def test_a_line_has_its_angle_its_range_and_its_noise() -> None:
    data = lines(None, 0, 3, gap_degrees=20.0, noise=0.2, train_per_line=20_000, test_per_line=100)
    assert (data.x_train.shape, data.x_test.shape, data.num_outputs) == ((60_000, 1), (300, 1), 1)
    for line, angle in enumerate((-20.0, 0.0, 20.0)):
        mine = data.group_train == line
        x, y = data.x_train[mine, 0].astype(np.float64), data.y_train[mine].astype(np.float64)
        assert 0 <= x.min() < 0.01
        assert 0.99 < x.max() / np.cos(np.deg2rad(angle)) <= 1.0001
        slope = (x @ y) / (x @ x)
        assert slope == pytest.approx(np.tan(np.deg2rad(angle)), abs=0.02)
        assert np.std(y - slope * x) == pytest.approx(0.2, abs=0.005)
    again = lines(None, 0, 3, train_per_line=20_000, test_per_line=100)
    np.testing.assert_array_equal(data.x_train, again.x_train)
    assert (lines(None, 1, 3, train_per_line=20_000).x_train != data.x_train).any()


def pooled_images(num: int = 43) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.random((num, 1, 6, 6), dtype=np.float32)
    y = rng.integers(10, size=num)
    return pool(Dataset(x[:30], y[:30], x[30:], y[30:], num_outputs=10))


def test_blocks_are_cut_in_order_and_dealt_to_neighbouring_clients() -> None:
    data = pooled_images()
    angles = [0.0, 15.0, 90.0, 105.0]
    shards = rotation_blocks(data, 8, 2, np.random.default_rng(1), angles)
    check_shards(shards, data, 8)
    assert [shard.cluster for shard in shards] == [0, 0, 0, 0, 1, 1, 1, 1]
    rows = [np.sort(np.concatenate([shard.train, shard.test])) for shard in shards]
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(43))
    # 43 images in 4 blocks: 11, 11, 11, 10; each in two clients' halves, of which 30 % are for tests.
    assert [len(part) for part in rows] == [6, 5, 6, 5, 6, 5, 5, 5]
    assert [len(shard.test) for shard in shards] == [2, 2, 2, 2, 2, 2, 2, 2]
    for shard, angle in zip(shards, np.repeat(angles, 2), strict=True):
        x, y = data.x_train[shard.train], data.y_train[shard.train]
        seen = x if shard.transform is None else shard.transform(x, y)[0]
        np.testing.assert_array_equal(seen, turned(x, y, angle, order=0)[0])


def test_a_mixture_has_two_pure_groups_and_one_of_both() -> None:
    data = pooled_images()
    shards = rotation_mixture(data, 4, 3, np.random.default_rng(2), kappa=0.5)
    check_shards(shards, data, 4)
    assert [shard.cluster for shard in shards] == [0, 0, 1, 2]
    # 43 images: 15 for two clients, 14, 14; 30 % of 8, 7, 14 and 14 are for tests.
    held = [sum(len(piece.test) for piece in shard.pieces) for shard in shards]
    assert held == [2, 2, 4, 4]
    rows = [np.concatenate([piece.train, piece.test]) for shard in shards for piece in shard.pieces]
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(43))
    turns = [[piece.transform is not None for piece in shard.pieces] for shard in shards]
    assert turns == [[False], [False], [True], [False, True]]
    upright, over = shards[3].pieces
    assert len(upright.train) > 0
    assert over.transform is not None
    seen, _ = over.transform(data.x_train[over.train], data.y_train[over.train])
    np.testing.assert_array_equal(seen, data.x_train[over.train][..., ::-1, ::-1])


def test_a_mixture_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="num_clusters=2: partition rotation_mixture has 3 clusters"):
        rotation_mixture(pooled_images(), 3, 2, np.random.default_rng(0))
    data = pooled_images()
    split = Dataset(data.x_train[:30], data.y_train[:30], data.x_train[30:], data.y_train[30:], num_outputs=10)
    with pytest.raises(ValueError, match=r"add task\.data_options\.pooled=true"):
        rotation_mixture(split, 3, 3, np.random.default_rng(0))
