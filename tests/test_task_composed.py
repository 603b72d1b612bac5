"""The composed partition: clusters from combinations of changes, labels and sizes of clients, mixtures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.task.data.dataset import Dataset
from florets.task.partitions.amounts import apportion
from florets.task.partitions.composed import composed
from florets.task.partitions.shard import check_shards
from florets.task.task import Task, TaskSpec


def numbered(num_train=400, num_test=100, num_labels=10, side=2):
    """Images that hold their row number, labels in turn."""
    parts = []
    for count in (num_train, num_test):
        x = np.repeat(np.arange(count, dtype=np.float32), side * side).reshape(count, 1, side, side)
        parts += [x, np.arange(count) % num_labels]
    return Dataset(*parts, num_outputs=num_labels)


DATA = numbered()


def made(num_clients, num_clusters=1, data=DATA, seed=0, **options):
    shards = composed(data, num_clients, num_clusters, np.random.default_rng(seed), **options)
    check_shards(shards, data, num_clients)
    return shards


def rows(shard, part="train"):
    return np.concatenate([getattr(piece, part) for piece in shard.pieces])


def sizes(shards, part="train"):
    return [len(rows(shard, part)) for shard in shards]


def labels(shards, part="train", data=DATA):
    y = data.y_train if part == "train" else data.y_test
    return np.array([np.bincount(y[rows(shard, part)], minlength=data.num_outputs) for shard in shards])


@given(
    seed=st.integers(0, 2**32),
    num_clients=st.integers(2, 24),
    angles=st.sampled_from([None, [0, 90], [0, 180]]),
    alpha=st.sampled_from([None, 0.1, 1.0, 100.0]),
    labels_per_client=st.sampled_from([None, 2, 5]),
    asked=st.sampled_from([None, 7, [2, 20]]),
    own_fraction=st.sampled_from([1.0, 0.6]),
    reuse=st.sampled_from(["none", "clusters", "clients"]),
)
@settings(max_examples=25, deadline=None)
def test_clients_have_the_sizes_asked_for_and_no_sample_twice(
    seed, num_clients, angles, alpha, labels_per_client, asked, own_fraction, reuse
):
    num_clusters = 1 if angles is None else 2
    own = own_fraction if angles else 1.0
    options = {
        "angles": angles,
        "alpha": alpha,
        "labels_per_client": labels_per_client,
        "samples_per_client": asked,
        "own_fraction": own,
        "reuse": reuse,
    }
    try:
        shards = made(num_clients, num_clusters, seed=seed, **options)
    except ValueError as error:
        # Two labels of 40 samples, or next to none of one, need not reach.
        refused = str(error)
        told = ("there are too few", "fewer than 2", "reuse=clients", "gets no test sample")
    else:
        refused, told = "", ("",)
    assert any(words in refused for words in told)
    if refused:
        return
    found = sizes(shards)
    if isinstance(asked, int):
        assert set(found) == {asked}
    elif asked is not None:
        assert all(asked[0] <= size <= asked[1] for size in found)
    elif reuse == "none" and labels_per_client is None:
        assert sum(found) == len(DATA.x_train)
    every = np.concatenate([rows(shard) for shard in shards])
    of_cluster = [
        np.concatenate([piece.train for shard in shards for piece in shard.pieces if piece.cluster == cluster])
        for cluster in range(num_clusters)
    ]
    if reuse == "none":
        assert len(np.unique(every)) == len(every)
    elif reuse == "clusters":
        assert all(len(np.unique(part)) == len(part) for part in of_cluster)
    else:
        assert all(len(np.unique(rows(shard))) == len(rows(shard)) for shard in shards)
    for shard in shards:
        assert all(len(np.unique(piece.test)) == len(piece.test) for piece in shard.pieces)
    if labels_per_client is not None:
        assert ((labels(shards) > 0).sum(axis=1) <= labels_per_client).all()
    again = made(num_clients, num_clusters, seed=seed, **options)
    assert all(np.array_equal(rows(a), rows(b)) for a, b in zip(shards, again, strict=True))


def test_every_combination_of_changes_is_a_cluster_and_the_eight_turns_and_mirror_images_differ():
    shards = made(16, 8, angles=[0, 90, 180, 270], mirror=True)
    assert [shard.cluster for shard in shards] == np.repeat(np.arange(8), 2).tolist()
    image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    seen = [image if s.transform is None else s.transform(image, np.zeros(1, int))[0] for s in shards[::2]]
    assert len({tuple(view.ravel()) for view in seen}) == 8
    # First the turns, then those of the mirror image, which is made before it is turned.
    assert seen[1].ravel().tolist() == [1, 3, 0, 2]
    assert seen[4].ravel().tolist() == [1, 0, 3, 2]
    assert seen[5].ravel().tolist() == np.rot90(image[0, 0, :, ::-1]).ravel().tolist()


def test_labels_are_renamed_by_shifts():
    y = np.arange(10)
    shifted = made(3, 3, label_shifts=[0, 3, -1])
    assert shifted[0].transform is None
    assert shifted[1].transform(y, y)[1].tolist() == [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert shifted[2].transform(y, y)[1].tolist() == [9, *range(9)]


def test_a_mixture_has_its_own_fraction_and_the_rest_of_the_other_clusters_alike():
    shards = made(9, 3, angles=[0, 90, 180], own_fraction=0.7, samples_per_client=40)
    for shard in shards:
        assert [len(piece.train) for piece in shard.pieces] == [28, 6, 6]
        assert sorted(piece.cluster for piece in shard.pieces) == [0, 1, 2]
        assert [len(piece.test) for piece in shard.pieces] == [7, 2, 1]
    # Sets of labels mix as well.
    counts = labels(made(4, 2, labels_per_cluster=5, own_fraction=0.75, samples_per_client=40))
    assert counts[0, :5].sum() == counts[3, 5:].sum() == 30
    assert counts[0, 5:].sum() == counts[3, :5].sum() == 10


def test_a_task_gives_each_piece_of_a_client_its_own_change():
    spec = TaskSpec(
        data="digits",
        partition="composed",
        model="mlp",
        loss="cross_entropy",
        num_clients=4,
        num_clusters=2,
        seed=3,
        data_dir="",
        partition_options={"angles": [0, 90], "own_fraction": 0.6, "samples_per_client": 50},
    )
    task = Task(spec)
    client, shard = task.client(3), task.shards[3]
    assert client.x_train.shape == (50, 1, 8, 8)
    own, other = shard.pieces
    assert (own.cluster, other.cluster) == (1, 0)
    x = task.data.x_train
    np.testing.assert_array_equal(client.x_train[:30].numpy(), np.rot90(x[own.train], 1, (-2, -1)))
    np.testing.assert_array_equal(client.x_train[30:].numpy(), x[other.train])
    of_one = [piece.test for s in task.shards for piece in s.pieces if piece.cluster == 1]
    assert len(task.cluster_tests_at(0)[1][0]) == len(np.unique(np.concatenate(of_one)))


@given(st.integers(0, 500), st.lists(st.floats(0.001, 1), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_apportioned_parts_add_up_and_are_within_one_of_their_share(total, weights):
    given_weights = np.array(weights)
    parts = apportion(total, given_weights)
    assert parts.sum() == total
    assert (np.abs(parts - total * given_weights / given_weights.sum()) < 1).all()


@pytest.mark.parametrize(
    ("num_clients", "num_clusters", "options", "message"),
    [
        (8, 3, {"angles": [0, 90]}, "num_clusters=3 must be 2, the number of combinations"),
        (8, 6, {"labels_per_cluster": 2}, "from 1 to 1: the data set has 10"),
        (8, 1, {"samples_per_client": 51}, r"too few: lower .*samples_per_client or .*reuse=clients"),
        (8, 1, {"own_fraction": 0.5}, "must be 1 with task.num_clusters=1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(num_clients, num_clusters, options, message):
    with pytest.raises(ValueError, match=message):
        made(num_clients, num_clusters, **options)
