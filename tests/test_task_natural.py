"""Natural clients: each holds the samples of one owner, which a table's column or an archive's array names."""

import numpy as np
import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.task.data import Dataset
from florets.task.data.own import own
from florets.task.partitions import check_shards, natural
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.task import Task, TaskSpec

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
    assert [len(s.train) for s in made(4, least_samples=1, samples_per_client=5)] == [5, 4, 1, 5]


def test_of_more_owners_as_many_are_drawn_as_there_are_clients():
    drawn = {tuple(OWNERS[s.train[0]] for s in made(2, seed=seed)) for seed in range(20)}
    assert len(drawn) == 3
    assert all(names == tuple(sorted(names)) for names in drawn)


def test_changes_make_known_clusters_of_owners():
    shards = made(3, 2, angles=[0, 90], clients_per_cluster=[1, 2])
    assert [s.cluster for s in shards] == [0, 1, 1]
    assert shards[0].transform is None
    assert shards[1].transform.angle == 90


@pytest.mark.parametrize(
    ("num_clients", "num_clusters", "options", "message"),
    [
        (4, 0, {}, "of the 4 owners 3 have a test sample .*use num_clients=3"),
        (3, 0, {"angles": [0, 90]}, "makes 2: use task.num_clusters=2"),
        (3, 1, {"angles": [0, 90]}, "num_clusters=1 must be 2"),
        (3, 0, {"samples_per_client": 0}, "must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(num_clients, num_clusters, options, message):
    with pytest.raises(ValueError, match=message):
        made(num_clients, num_clusters, **options)


def test_data_that_tell_no_owners_are_refused():
    x, y = np.zeros((4, 2)), np.zeros(4, int)
    with pytest.raises(ValueError, match=r"as task\.table\.owner, an archive.s array as task\.data_options\.owner"):
        made(1, data=Dataset(x, y, x, y, num_outputs=1))


def test_a_column_of_a_table_says_whose_a_line_is_and_is_no_input(tmp_path):
    lines = [f"{i},{'north' if i % 2 else 'south'},{i / 7},{i % 2}" for i in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["age,site,dose,ill", *lines]), encoding="utf-8")
    table = {"declared": {"owner": "site", "columns": ["age", "dose"], "standardise": "none"}}
    data = own(tmp_path, 0, 0, table=table)
    assert data.input_shape == (2,)
    for x, owners in ((data.x_train, data.owners_train), (data.x_test, data.owners_test)):
        assert [bool(age % 2) for age in x[:, 0]] == [owner == "north" for owner in owners]
    spec = TaskSpec("own", "natural", "mlp", "cross_entropy", 2, 0, 0, str(tmp_path), table=table)
    task = Task(spec)
    assert {age % 2 for age in task.client(0).x_train[:, 0].tolist()} == {1.0}
    assert task.cluster_of(1) == UNKNOWN_CLUSTER
    assert task.client_names == {0: "north", 1: "south"}


def test_an_array_of_an_archive_says_whose_a_sample_is(tmp_path):
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", x=x, y=y, writer=np.array([7, 7, 8, 8, 9, 9]))
    data = own(tmp_path, 0, 0, owner="writer")
    assert data.owners_train.tolist() == ["7", "7", "8", "8", "9", "9"]
    assert [s.train.tolist() for s in made(3, data=data)] == [[0, 1], [2, 3], [4, 5]]
    np.savez(tmp_path / "train.npz", x=x, y=y, writer=np.arange(3))
    with pytest.raises(ValueError, match="must name one owner for each sample"):
        own(tmp_path, 0, 0, owner="writer")


def test_a_natural_partition_may_leave_its_clusters_open_and_others_may_not():
    keys = ["task.data=own", "num_clients=2", "k=2", "data_dir=x"]
    assert compose([*keys, "task.partition=natural", "task.num_clusters=0"]).task.num_clusters == 0
    with pytest.raises(ConfigError, match="makes known clusters"):
        compose([*keys, "task.partition=composed", "task.num_clusters=0"])
