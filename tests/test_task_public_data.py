"""Loaders of public data sets on tiny files of their exact form, and on the real files where they are at hand."""

import pickle

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from florets.conf.compose import compose
from florets.server_app.build import build_task
from florets.task import data as public
from florets.task.data.channels import channels, response
from florets.task.partitions import by_class, natural
from tests.public_files import (
    write_channels,
    write_cifar,
    write_house_numbers,
    write_idx,
    write_leaf,
    write_news,
    write_reviews,
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
    data = public.ag_news(tmp_path, 0, 2, words=3, length=6)
    # oil is there 3 times; lt, b, gt, on and new twice, of which lt and b are seen first.
    assert data.x_train.tolist()[0] == [2, 3, 4, 1, 1, 3]
    assert data.x_train.tolist()[1] == [1, 1, 1, 1, 1, 0]
    assert data.x_test.tolist() == [[2, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert data.y_train.tolist() == [2, 0, 3, 1]
    assert (data.num_outputs, data.input_shape) == (4, (6,))


@pytest.mark.parametrize("raw", [True, False])
def test_reviews_become_counts_of_words_by_the_kind_of_product(tmp_path, raw):
    write_reviews(tmp_path / ("sorted_data_acl" if raw else "processed_acl"), raw)
    data = public.amazon_reviews(tmp_path, 3, 4, words=40, test_share=0.2)
    assert (data.x_train.shape, data.x_test.shape, data.num_outputs) == ((32, 40), (8, 40), 2)
    assert np.bincount(data.group_train).tolist() == [8] * 4
    assert np.bincount(data.group_test).tolist() == [2] * 4
    # "great" is there twice in each good review, and there are more of its kind than of any other word.
    column = 0 if not raw else int(np.flatnonzero((data.x_train == np.float32(np.log(3))).any(axis=0))[0])
    np.testing.assert_allclose(data.x_train[:, column], np.where(data.y_train == 1, np.log(3), 0), rtol=1e-6)
    again, other = public.amazon_reviews(tmp_path, 3, 4, words=40), public.amazon_reviews(tmp_path, 4, 4, words=40)
    assert again.x_test.tobytes() == public.amazon_reviews(tmp_path, 3, 4, words=40).x_test.tobytes()
    assert again.x_test.tobytes() != other.x_test.tobytes()
    shards = by_class(data, 8, 4, np.random.default_rng(0), samples_per_client=4)
    assert [set(data.group_train[shard.train].tolist()) for shard in shards[::2]] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("packed", [True, False])
def test_letters_stand_upright_and_are_numbered_from_zero(tmp_path, packed):
    folder, labels = tmp_path / "EMNIST" / "raw", np.array([1, 26, 5])
    images = write_idx(folder, "emnist-letters-train", 3, labels, packed)
    write_idx(folder, "emnist-letters-test", 2, labels[:2], packed)
    data = public.emnist(tmp_path, 0, 2, split="letters")
    assert (data.y_train.tolist(), data.num_outputs) == ([0, 25, 4], 26)
    np.testing.assert_allclose(data.x_train[1, 0], images[1].T / 255, rtol=1e-6)
    assert public.emnist(tmp_path, 0, 2, split="letters", pooled=True).x_test.shape == (5, 1, 28, 28)


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
    assert [len(public.emnist(tmp_path, seed, 2, most_samples=300).y_test) < 124 for seed in (0, 1)] == [True, True]
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
    data = public.mnist_and_fashion(tmp_path, 0, 2)
    assert data.y_train.tolist() == [0, 9, 4, 10, 19, 14]
    assert data.group_test.tolist() == [0, 0, 1, 1]
    assert data.num_outputs == 20
    np.testing.assert_allclose(data.x_test[3, 0], images[1] / 255, rtol=1e-6)
    shared = public.mnist_and_fashion(tmp_path, 0, 2, side=14, shared_labels=True)
    assert (shared.y_test.tolist(), shared.num_outputs, shared.input_shape) == ([1, 2, 1, 2], 10, (1, 14, 14))
    pool = public.mnist_and_fashion(tmp_path, 0, 2, pooled=True)
    # One set after the other, so that a partition that cuts in file order keeps them apart.
    assert (pool.pooled, pool.y_test.tolist()) == (True, [0, 9, 4, 1, 2, 10, 19, 14, 11, 12])
    assert pool.group_train.tolist() == [0] * 5 + [1] * 5


def test_handwriting_is_read_with_its_writers_who_become_clients(tmp_path):
    write_leaf(tmp_path / "femnist/train/all_data_0_niid_0_keep_0_train_9.json", {"f0_1": 3, "f2_7": 2})
    write_leaf(tmp_path / "femnist/train/all_data_1_niid_0_keep_0_train_9.json", {"f9_9": 4}, 5)
    write_leaf(tmp_path / "femnist/test/all_data_0_niid_0_keep_0_test_9.json", {"f9_9": 1, "f0_1": 1})
    data = public.femnist(tmp_path, 0, 0)
    assert (data.x_train.shape, data.num_outputs) == ((9, 1, 28, 28), 62)
    assert data.x_train[:, 0, 0, 0].tolist() == list(range(9))
    assert data.y_train.tolist() == [61, 60, 59, 61, 60, 61, 60, 59, 58]
    shards = natural(data, 2, 0, np.random.default_rng(0))
    assert [(shard.train.tolist(), shard.test.tolist()) for shard in shards] == [
        ([0, 1, 2], [1]),
        ([5, 6, 7, 8], [0]),
    ]
    assert abs(public.femnist(tmp_path, 0, 0, standardise=True).x_train.std() - 1) < 1e-3
    for name, part in (("train", slice(0, 6)), ("test", slice(6, 9))):
        parts = {"x": data.x_train[part].reshape(-1, 784), "y": data.y_train[part]}
        np.savez(tmp_path / f"femnist/{name}.npz", **parts, writer=data.owners_train[part])
    archive = public.femnist(tmp_path, 0, 0)
    assert (len(archive.x_train), archive.owners_test.tolist()) == (6, ["f9_9"] * 3)


def test_channel_states_have_a_mean_square_of_one_and_groups_by_their_scene(tmp_path):
    folder = tmp_path / "COST2100"
    write_channels(folder, {"trainin": 3, "testin": 2, "trainout": 4, "testout": 1})
    data, raw = public.cost2100(tmp_path, 0, 2), public.cost2100(tmp_path, 0, 2, normalise=False, most_samples=2)
    assert (data.x_train.shape, data.group_train.tolist()) == ((7, 2, 32, 32), [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(np.square(data.x_train).mean(axis=(1, 2, 3)), 1, rtol=1e-5)
    assert raw.group_test.tolist() == [0, 0, 1]
    assert abs(raw.x_test - 0.5).max() < 0.06
    savemat(folder / "DATA_Htestin.mat", {"HT": np.zeros((2, 5))})
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read \(HT holds float64 of shape \(2, 5\)\)"):
        public.cost2100(tmp_path, 0, 2)
    (folder / "DATA_Htestin.mat").write_bytes(b"no such format")
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read .*CsiNet"):
        public.cost2100(tmp_path, 0, 2)
    (folder / "DATA_Htestin.mat").unlink()
    with pytest.raises(ValueError, match=r"DATA_Htestin\.mat cannot be read \(there is no such file"):
        public.cost2100(tmp_path, 0, 2)


def test_cifar_100_has_classes_and_superclasses(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    labels = {"train": ("train", [0, 1, 2, 53, 57, 83]), "test": ("test", [99, 48])}
    write_cifar(tmp_path, "CIFAR100", labels, ["apple", "aquarium_fish", "baby"], monkeypatch)
    fine, coarse = public.cifar100(tmp_path, 0, 0), public.cifar100(tmp_path, 0, 0, labels="coarse", pooled=True)
    assert (fine.x_train.shape, fine.num_outputs, fine.y_test.tolist()) == ((6, 3, 32, 32), 100, [99, 48])
    # Apples, oranges, pears and sweet peppers are fruit and vegetables; worms and motorcycles.
    assert coarse.y_train.tolist() == [4, 1, 14, 4, 4, 4, 13, 18]
    assert (coarse.num_outputs, len(coarse.x_train)) == (20, 8)
    values = pickle.loads((folder / "train").read_bytes())
    np.testing.assert_allclose(fine.x_train[0].ravel(), values["data"][0] / 255, rtol=1e-6)
    (folder / "train").write_bytes(b"")
    with pytest.raises(ValueError, match=r"data CIFAR100: the files under .* datasets\.CIFAR100\(root="):
        public.cifar100(tmp_path, 0, 0)


def test_house_numbers_are_read_and_their_10_is_a_0(tmp_path):
    folder = tmp_path / "svhn"
    images = write_house_numbers(folder, [1, 0, 9, 0])
    data = public.svhn(tmp_path, 0, 0)
    assert (data.y_train.tolist(), data.num_outputs) == ([1, 0, 9, 0], 10)
    np.testing.assert_allclose(data.x_train[2], images[:, :, :, 2].transpose(2, 0, 1) / 255, rtol=1e-6)
    assert public.svhn(tmp_path, 0, 0, pooled=True).x_test.shape == (8, 3, 32, 32)
    savemat(folder / "test_32x32.mat", {"X": images, "y": np.ones((3, 1))})
    with pytest.raises(ValueError, match=r"test_32x32\.mat cannot be read \(X holds uint8 of shape \(32, 32, 3, 4\)"):
        public.svhn(tmp_path, 0, 0)
    (folder / "test_32x32.mat").unlink()
    with pytest.raises(ValueError, match=r"there is no such file.*datasets\.SVHN"):
        public.svhn(tmp_path, 0, 0)


def test_tiny_imagenet_is_read_from_its_folders(tmp_path):
    folder, colours = tmp_path / "tiny-imagenet-200", {"n01": (255, 0, 0), "n02": (0, 0, 255)}
    for name, colour in colours.items():
        (folder / f"train/{name}/images").mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (64, 64), colour).save(folder / f"train/{name}/images/{name}_{number}.JPEG")
        (folder / f"train/{name}/{name}_boxes.txt").write_text("n01_0.JPEG\t0\t0\t62\t62\n")
    (folder / "val/images").mkdir(parents=True)
    for number, mode in enumerate(("L", "RGB")):
        Image.new(mode, (64, 64), "white").save(folder / f"val/images/val_{number}.JPEG")
    annotations = folder / "val/val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn02\t0\t0\t63\t63\nval_1.JPEG\tn01\t0\t0\t63\t63\n")
    data = public.tiny_imagenet(tmp_path, 0, 0)
    assert (data.x_train.shape, data.num_outputs) == ((4, 3, 64, 64), 2)
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 0, 1, 1], [1, 0])
    assert data.x_train[0].mean(axis=(1, 2)).round(1).tolist() == [1.0, 0.0, 0.0]
    assert (data.x_test[:] == 1).all()
    assert public.tiny_imagenet(tmp_path, 0, 0, image_size=32, pooled=True).x_test.shape == (6, 3, 32, 32)
    annotations.write_text("val_0.JPEG\tn03\n../val_1.JPEG\tn01\nval_1.JPEG\tn01\n")
    with pytest.raises(ValueError, match="2 of its 3 lines name no image of val/images/ with a class of train/"):
        public.tiny_imagenet(tmp_path, 0, 0)
    annotations.unlink()
    with pytest.raises(ValueError, match=r"val_annotations\.txt cannot be read \(there is no such file"):
        public.tiny_imagenet(tmp_path, 0, 0)
