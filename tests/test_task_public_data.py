"""Loaders of public data sets on tiny files of their exact form, and on the real files where they are at hand."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from florets.conf.compose import compose
from florets.server_app.build import build_task
from florets.task.data.channels import channels, cost2100, response
from florets.task.data.public_images import emnist, femnist, mnist_and_fashion
from florets.task.data.sites import heart_disease, schools
from florets.task.data.texts import ag_news, amazon_reviews, tokens, words_of
from florets.task.partitions.natural import by_class, natural
from tests.public_files import (
    write_channels,
    write_hospitals,
    write_idx,
    write_leaf,
    write_news,
    write_reviews,
    write_schools,
)

NEWS = [
    (3, 'Oil &lt;b&gt;prices&lt;/b&gt; "soar"', "Oil, again. It's oil"),
    (1, "Talks", "go on\\and on"),
    (4, "New chip", "of New York"),
    (2, "Cup", "final"),
]


def test_news_become_tokens_of_the_training_texts_words(tmp_path):
    write_news(tmp_path / "ag_news_csv" / "train.csv", NEWS)
    write_news(tmp_path / "ag_news_csv" / "test.csv", [(1, "Oil", "unheard of"), (4, "", "")])
    data = ag_news(tmp_path, 0, 2)
    # oil is there 3 times; lt, b, gt, on and new twice, of which lt and b are seen first.
    assert data.x_train[0, :3].tolist() == [2, 3, 4]
    assert data.x_test[:, :2].tolist() == [[2, 1], [0, 0]]
    assert data.y_train.tolist() == [2, 0, 3, 1]
    assert (data.num_outputs, data.input_shape) == (4, (200,))
    assert tokens([words_of("Oil oil talks"), []], {"oil": 0}, 2).tolist() == [[2, 2], [0, 0]]


def test_reviews_become_counts_of_words_by_the_kind_of_product(tmp_path):
    write_reviews(tmp_path / "processed_acl", number=10)
    data = amazon_reviews(tmp_path, 3, 4)
    assert (data.x_train.shape, data.x_test.shape, data.num_outputs) == ((72, 5000), (8, 5000), 2)
    assert np.bincount(data.group_train).tolist() == [18] * 4
    assert np.bincount(data.group_test).tolist() == [2] * 4
    # "great" is there twice in each good review, and there are more of its kind than of any other word.
    np.testing.assert_allclose(data.x_train[:, 0], np.where(data.y_train == 1, np.log(3), 0), rtol=1e-6)
    again, other = amazon_reviews(tmp_path, 3, 4), amazon_reviews(tmp_path, 4, 4)
    assert again.x_test.tobytes() == data.x_test.tobytes()
    assert again.x_test.tobytes() != other.x_test.tobytes()
    shards = by_class(data, 8, 4, np.random.default_rng(0), samples_per_client=4)
    assert [set(data.group_train[shard.train].tolist()) for shard in shards[::2]] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("packed", [True, False])
def test_letters_stand_upright(tmp_path, packed):
    folder, labels = tmp_path / "EMNIST" / "raw", np.array([1, 61, 5])
    images = write_idx(folder, "emnist-byclass-train", 3, labels, packed)
    write_idx(folder, "emnist-byclass-test", 2, labels[:2], packed)
    data = emnist(tmp_path, 0, 2)
    assert (data.y_train.tolist(), data.num_outputs) == ([1, 61, 5], 62)
    np.testing.assert_allclose(data.x_train[1, 0], images[1].T / 255, rtol=1e-6)
    assert emnist(tmp_path, 0, 2, pooled=True).x_test.shape == (5, 1, 28, 28)


def test_the_preset_of_emnist_deals_two_groups_and_names_the_file_that_is_missing(tmp_path):
    folder, classes = tmp_path / "EMNIST" / "raw", np.tile(np.arange(62), 4)
    overrides = ["experiment=paper/cfl_gp/emnist", f"data_dir={tmp_path}", "task.data_options.most_samples=300"]
    write_idx(folder, "emnist-byclass-train", len(classes), classes)
    with pytest.raises(ValueError, match=r"emnist-byclass-test-images-idx3-ubyte cannot be read \(there is no such"):
        _ = build_task(compose(overrides)).shards
    write_idx(folder, "emnist-byclass-test", 124, classes[:124])
    task = build_task(compose(overrides))
    shards = [task.shards[client] for client in range(10)]
    assert [shard.cluster for shard in shards] == [0] * 5 + [1] * 5
    assert [shard.transform is None for shard in shards] == [True] * 5 + [False] * 5
    assert sorted(np.concatenate([part for s in shards for part in (s.train, s.test)])) == list(range(300))
    assert all(len(s.test) == round(0.3 * (len(s.train) + len(s.test))) for s in shards)
    assert [len(emnist(tmp_path, seed, 2, most_samples=300).y_test) < 124 for seed in (0, 1)] == [True, True]
    assert sum(parameter.numel() for parameter in task.build_model().parameters()) == 18_506


def test_a_single_path_is_one_angle_and_one_delay():
    one = np.ones((1, 1, 1))
    # Half a wavelength between antennas: a sine of 2 * 5 / 32 is the fifth of 32 angles. Its delay is 3 taps.
    power = np.square(response(np.full((1, 1), 3.0), one * 10 / 32, one * 1j)).sum(axis=1)[0]
    assert np.unravel_index(power.argmax(), power.shape) == (5, 3)
    assert power.max() == pytest.approx(2 * 32 * 32, rel=1e-4)
    data = channels(None, 0, 5, train_per_scene=6, test_per_scene=2)
    assert (data.x_train.shape, data.group_test.tolist()) == ((30, 2, 32, 32), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    np.testing.assert_allclose(np.square(data.x_train).mean(axis=(1, 2, 3)), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="num_clusters=6: data channels has 5 scenes"):
        channels(None, 0, 6)


def test_mnist_and_fashion_mnist_are_one_data_set_of_two_groups(tmp_path):
    for name, packed in (("MNIST", True), ("FashionMNIST", False)):
        write_idx(tmp_path / name / "raw", "train", 3, np.array([0, 9, 4]), packed)
        images = write_idx(tmp_path / name / "raw", "t10k", 2, np.array([1, 2]), packed)
    data = mnist_and_fashion(tmp_path, 0, 2)
    assert data.y_train.tolist() == [0, 9, 4, 0, 9, 4]
    assert data.group_test.tolist() == [0, 0, 1, 1]
    assert (data.num_outputs, data.input_shape) == (10, (1, 28, 28))
    np.testing.assert_allclose(data.x_test[3, 0], images[1] / 255, rtol=1e-6)
    pool = mnist_and_fashion(tmp_path, 0, 2, pooled=True)
    # One set after the other, so that a partition that cuts in file order keeps them apart.
    assert (pool.pooled, pool.y_test.tolist()) == (True, [0, 9, 4, 1, 2, 0, 9, 4, 1, 2])
    assert pool.group_train.tolist() == [0] * 5 + [1] * 5


def test_handwriting_is_read_with_its_writers_who_become_clients(tmp_path):
    write_leaf(tmp_path / "femnist/train/all_data_0_niid_0_keep_0_train_9.json", {"f0_1": 3, "f2_7": 2})
    write_leaf(tmp_path / "femnist/train/all_data_1_niid_0_keep_0_train_9.json", {"f9_9": 4}, 5)
    write_leaf(tmp_path / "femnist/test/all_data_0_niid_0_keep_0_test_9.json", {"f9_9": 1, "f0_1": 1})
    data = femnist(tmp_path, 0, 0)
    assert (data.x_train.shape, data.num_outputs) == ((9, 1, 28, 28), 62)
    assert data.x_train[:, 0, 0, 0].tolist() == list(range(9))
    assert data.y_train.tolist() == [61, 60, 59, 61, 60, 61, 60, 59, 58]
    shards = natural(data, 2, 0, np.random.default_rng(0))
    assert [(shard.train.tolist(), shard.test.tolist()) for shard in shards] == [
        ([0, 1, 2], [1]),
        ([5, 6, 7, 8], [0]),
    ]


def test_channel_states_have_a_mean_square_of_one_and_groups_by_their_scene(tmp_path):
    folder = tmp_path / "COST2100"
    write_channels(folder, {"trainin": 3, "testin": 2, "trainout": 4, "testout": 1})
    data = cost2100(tmp_path, 0, 2)
    assert (data.x_train.shape, data.group_train.tolist()) == ((7, 2, 32, 32), [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(np.square(data.x_train).mean(axis=(1, 2, 3)), 1, rtol=1e-5)
    assert data.group_test.tolist() == [0, 0, 1]
    savemat(folder / "DATA_Htestin.mat", {"HT": np.zeros((2, 5))})
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read \(HT holds float64 of shape \(2, 5\)\)"):
        cost2100(tmp_path, 0, 2)
    (folder / "DATA_Htestin.mat").write_bytes(b"no such format")
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read .*CsiNet"):
        cost2100(tmp_path, 0, 2)
    (folder / "DATA_Htestin.mat").unlink()
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read \(there is no such file"):
        cost2100(tmp_path, 0, 2)


def test_hospitals_drop_three_columns_and_patients_with_missing_values(tmp_path: Path) -> None:
    folder = tmp_path / "fed_heart_disease"
    write_hospitals(folder, 10)
    data = heart_disease(tmp_path, 0, 0)
    assert len(data.x_train) + len(data.x_test) == 10 + 11 + 12 + 13
    assert data.input_shape == (13,)
    assert data.owners_train is not None
    assert set(data.owners_train) == {"cleveland", "hungarian", "switzerland", "va"}
    # Of each hospital's two and eight patients without and with the disease 30 % are test data.
    assert sorted(data.y_test[np.asarray(data.owners_test) == "cleveland"]) == [0, 1, 1]
    np.testing.assert_allclose(data.x_train[:, 0].mean(), 0, atol=1e-6)
    assert not np.array_equal(heart_disease(tmp_path, 1, 0).x_test, data.x_test)
    (folder / "processed.va.data").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"processed\.va\.data cannot be read \(it has 2 columns\).*C52P4X"):
        heart_disease(tmp_path, 0, 0)


def test_schools_targets_are_in_units_of_their_spread(tmp_path: Path) -> None:
    write_schools(tmp_path / "schools_hsb82" / "hsb82.csv", 20, 2)
    data = schools(tmp_path, 0, 0)
    assert (len(data.x_train), len(data.x_test), data.num_outputs) == (14, 6, 1)
    targets = np.concatenate([data.y_train, data.y_test]) * data.target_scale
    assert np.ptp(targets) == pytest.approx(19, abs=1e-4)
    # A column that is the same everywhere stays 0.
    assert not data.x_train[:, 1].any()
