"""The tasks of CFL-GP's experiments: lines that differ by an angle, a pool turned block by block."""

import numpy as np
import pytest

from florets.task.data import Dataset, lines
from florets.task.data.vision import pool
from florets.task.partitions import check_shards, rotation, rotation_blocks, rotation_mixture
from florets.task.partitions.rotation import turned


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


@pytest.mark.parametrize(
    "options", [{"gap_degrees": 0.0}, {"gap_degrees": 90.0}, {"noise": -1.0}, {"train_per_line": 0}]
)
def test_lines_that_cannot_be_drawn_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"task.data_options.{next(iter(options))}"):
        lines(None, 0, 3, **options)  # type: ignore[arg-type]


def images(num: int = 43) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.random((num, 1, 6, 6), dtype=np.float32)
    y = rng.integers(10, size=num)
    return pool(Dataset(x[:30], y[:30], x[30:], y[30:], num_outputs=10))


def test_blocks_are_cut_in_order_and_dealt_to_neighbouring_clients() -> None:
    data = images()
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"angles": [0.0, 15.0, 90.0]}, "angles has length 3"),
        ({"num_clients": 3}, "num_clients=3 is less than the 4 angles"),
        ({"test_share": 0.0}, "test_share=0.0"),
        ({"test_share": 1.0}, "test_share=1.0"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    given = {"num_clients": 8, "num_clusters": 4, "rng": np.random.default_rng(0), **settings}
    with pytest.raises(ValueError, match=message):
        rotation_blocks(images(), **given)  # type: ignore[arg-type]


def test_a_pool_and_a_partition_must_fit_each_other() -> None:
    data = images()
    split = Dataset(data.x_train[:30], data.y_train[:30], data.x_train[30:], data.y_train[30:], num_outputs=10)
    with pytest.raises(ValueError, match=r"add task\.data_options\.pooled=true"):
        rotation_blocks(split, 8, 4, np.random.default_rng(0))
    flat = Dataset(*[data.x_train.reshape(43, -1), data.y_train] * 2, num_outputs=10)
    with pytest.raises(ValueError, match="needs square images"):
        rotation_blocks(flat, 8, 4, np.random.default_rng(0))
    shards = rotation(data, 4, 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="43 rows of the pool are in a train and in a test part"):
        check_shards(shards, data, 4)


def test_a_mixture_has_two_pure_groups_and_one_of_both() -> None:
    data = images()
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kappa": 0.0}, "kappa=0.0 must be between 0 and 1"),
        ({"test_share": 1.0}, "test_share=1.0 must be between 0 and 1"),
        ({"num_clusters": 2}, "num_clusters=2: partition rotation_mixture has 3 clusters"),
        ({"num_clients": 2}, "num_clients=2"),
    ],
)
def test_a_mixture_that_does_not_fit_is_refused(settings: dict[str, object], message: str) -> None:
    given = {"num_clients": 3, "num_clusters": 3, "rng": np.random.default_rng(0), **settings}
    with pytest.raises(ValueError, match=message):
        rotation_mixture(images(), **given)  # type: ignore[arg-type]
    data = images()
    split = Dataset(data.x_train[:30], data.y_train[:30], data.x_train[30:], data.y_train[30:], num_outputs=10)
    with pytest.raises(ValueError, match=r"add task\.data_options\.pooled=true"):
        rotation_mixture(split, 3, 3, np.random.default_rng(0))
