"""Partitions with given numbers of samples: a table of labels by cluster, and n-way k-shot clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.conf.compose import compose
from florets.task.data import Dataset
from florets.task.partitions import check_shards, label_counts, n_way


def numbered(num_train=400, num_test=100, num_labels=10):
    """Images that hold their row number, labels in turn."""
    parts = []
    for count in (num_train, num_test):
        x = np.repeat(np.arange(count, dtype=np.float32), 4).reshape(count, 1, 2, 2)
        parts += [x, np.arange(count) % num_labels]
    return Dataset(*parts, num_outputs=num_labels)


DATA = numbered()
TWO = [[4, 4, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0, 0, 7]]


def rng(seed=0):
    return np.random.default_rng(seed)


def labels(shards, part="train"):
    y = DATA.y_train if part == "train" else DATA.y_test
    return np.array([np.bincount(y[getattr(shard, part)], minlength=10) for shard in shards])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    table=st.lists(st.lists(st.integers(0, 6), min_size=10, max_size=10).filter(any), min_size=1, max_size=3),
    clients=st.integers(3, 6),
)
def test_every_client_has_its_clusters_counts_and_no_sample_is_dealt_twice(seed, table, clients):
    shards = label_counts(DATA, clients, len(table), rng(seed), counts=table, test_samples_per_client=5)
    check_shards(shards, DATA, clients)
    np.testing.assert_array_equal(labels(shards), [table[shard.cluster] for shard in shards])
    dealt = np.concatenate([shard.train for shard in shards])
    assert len(np.unique(dealt)) == len(dealt)
    for shard, tested in zip(shards, labels(shards, "test"), strict=True):
        counts = np.array(table[shard.cluster])
        assert tested.sum() == 5 == len(np.unique(shard.test))
        # Largest remainders: no label is off by a whole sample.
        assert np.abs(tested - 5 * counts / counts.sum()).max() < 1


def test_the_same_generator_deals_the_same_and_clusters_have_the_clients_asked_for():
    options = {"counts": TWO, "clients_per_cluster": [4, 1]}
    first, again, other = (label_counts(DATA, 5, 2, rng(seed), **options) for seed in (0, 0, 1))
    assert [shard.cluster for shard in first] == [0, 0, 0, 0, 1]
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.train, two.train)
        np.testing.assert_array_equal(one.test, two.test)
    assert any((one.train != two.train).any() for one, two in zip(first, other, strict=True))
    # 8 train samples, and the data set has a test sample for four of them.
    assert {len(shard.test) for shard in first} == {2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "partition_options.counts must be one list for each of task.num_clusters=2"),
        ({"counts": TWO[:1]}, "must be one list for each"),
        ({"counts": [TWO[0], TWO[1][:9]]}, "a number for each of the data set's 10 labels"),
        ({"counts": [TWO[0], [0] * 10]}, "a line must have one above 0"),
        ({"counts": [TWO[0], [*TWO[1][:9], -1]]}, "numbers must be at least 0"),
        ({"counts": [TWO[0], [*TWO[1][:9], 41]]}, "asks for 41 train samples of label 9 .* the data set has 40"),
        ({"counts": TWO, "clients_per_cluster": [1, 2]}, "are 3 clients"),
        ({"counts": TWO, "test_samples_per_client": 0}, "test_samples_per_client=0 must be at least 1"),
        ({"counts": TWO, "test_samples_per_client": 40}, "tested on 20 samples of label 0, and the test set has 10"),
    ],
)
def test_counts_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        label_counts(DATA, 2, 2, rng(), **options)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ways=st.integers(1, 10),
    ways_spread=st.integers(0, 3),
    shots=st.integers(4, 30),
    shots_spread=st.integers(0, 3),
)
def test_n_way_clients_have_as_many_samples_of_each_of_their_labels(seed, ways, ways_spread, shots, shots_spread):
    options = {"ways": ways, "ways_spread": ways_spread, "shots": shots, "shots_spread": shots_spread}
    shards = n_way(DATA, 6, 1, rng(seed), **options, test_shots=5)
    check_shards(shards, DATA, 6)
    for shard, trained, tested in zip(shards, labels(shards), labels(shards, "test"), strict=True):
        number = np.count_nonzero(trained)
        assert max(1, ways - ways_spread) <= number <= min(10, ways + ways_spread)
        (amount,) = set(trained[trained > 0])
        assert abs(int(amount) - shots) <= shots_spread
        np.testing.assert_array_equal(tested, np.where(trained > 0, 5, 0))
        assert len(np.unique(shard.train)) == len(shard.train) == number * amount
        assert shard.cluster == 0


def test_all_numbers_of_labels_within_the_spread_come_up():
    shards = n_way(DATA, 60, 1, rng(), ways=3, ways_spread=1, shots=20, shots_spread=2, test_shots=1)
    assert {np.count_nonzero(line) for line in labels(shards)} == {2, 3, 4}
    assert {line.max() for line in labels(shards)} == {18, 19, 20, 21, 22}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 11}, r"ways=11 must be from 1 to 10"),
        ({"ways_spread": -1}, "ways_spread=-1 must be from 0"),
        ({"shots": 41}, "shots=41 must be from 1 to 40"),
        ({"shots": 40, "shots_spread": 1}, "shots_spread=1 must be from 0 to 0"),
        ({"shots": 3, "shots_spread": 3}, "shots_spread=3 must be from 0 to 2"),
        ({"shots": 4, "test_shots": 11}, "test_shots=11 must be from 1 to 10"),
    ],
)
def test_ways_and_shots_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        n_way(DATA, 3, 1, rng(), **{"shots": 20, **options})


def test_n_way_has_no_groups():
    with pytest.raises(ValueError, match=r"task\.num_clusters=2: clients of the partition n_way form no groups"):
        n_way(DATA, 3, 2, rng(), shots=20, test_shots=5)


def test_fedpacs_clients_have_a_fifth_of_their_samples_of_all_labels_and_the_rest_of_three():
    table = np.array(compose(["experiment=fedpac/mnist_five_groups"]).task.partition_options["counts"])
    assert table.sum(axis=1).tolist() == [600] * 5
    for group, line in enumerate(table):
        favoured = [(2 * group + step) % 10 for step in range(3)]
        # 600 * 0.2 / 10 of every label, and 600 * 0.8 / 3 more of the three.
        np.testing.assert_array_equal(line, 12 + 160 * np.isin(np.arange(10), favoured))
