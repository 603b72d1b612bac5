"""FLUX's arithmetic: features, descriptors, their scale, the knee and the clusters."""

import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN
from torch import nn

from florets.strategies.base.placement import RowScale, nearest
from florets.strategies.core.cluster import canonical
from florets.strategies.flux.strategy import density_clusters, knee
from florets.task.descriptors import describe, projection
from florets.task.layers import with_head
from florets.task.models import cnn, mlp
from florets.task.training.features import features

# Features


def test_features_of_a_network_are_what_its_last_layer_gets() -> None:
    module = mlp((1, 4, 4), 3, hidden=[5])
    x = torch.rand(7, 1, 4, 4)
    found = features(module, x)
    assert isinstance(module, nn.Sequential)
    np.testing.assert_array_equal(found, module[:-1](x).detach().numpy().astype(np.float64))
    np.testing.assert_array_equal(features(module, x, ["1"]), x.flatten(1).numpy())


def test_features_of_more_samples_than_one_chunk_are_in_their_order() -> None:
    x = torch.arange(1203, dtype=torch.float32).reshape(-1, 1)
    found = features(nn.Sequential(nn.Flatten(), nn.Linear(1, 2)), x)
    np.testing.assert_array_equal(found, x.numpy())


def test_features_of_a_convolutional_network_are_flat_and_leave_no_hook() -> None:
    module = cnn((1, 8, 8), 10, kernel=3, padding=1)
    assert features(module, torch.rand(3, 1, 8, 8)).shape == (3, 16 * 2 * 2)
    assert not any(part._forward_pre_hooks for part in module.modules())


def test_of_several_layers_of_the_head_the_first_one_called_counts() -> None:
    module = with_head(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.Linear(4, 2)), "3", "2.weight")
    assert features(module, torch.rand(5, 2)).shape == (5, 3)


def test_a_head_that_is_never_called_is_refused() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.used(x)
            return found

    with pytest.raises(ValueError, match="never calls its head: it has no features"):
        features(Odd(), torch.rand(3, 2))
    with pytest.raises(ValueError, match="has no parameters"):
        features(nn.Flatten(), torch.rand(3, 2))


# Descriptors


def test_a_descriptor_by_hand() -> None:
    samples = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 2.0], [6.0, 1.0]])
    labels = np.array([0, 0, 2, 2, 1])
    found = describe(samples, labels, 3, np.eye(2))
    expected = [
        [2.0, 1.0],  # mean and spread of all
        [np.sqrt(26 / 5), np.sqrt(4 / 5)],
        [2.0, 0.0], [-1.0, -1.0], [0.0, 2.0],  # means of the classes: of one sample class 1 has no spread
        [1.0, 0.0], [-1.0, -1.0], [0.0, 0.0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected)


def test_without_labels_all_classes_are_absent() -> None:
    samples = np.random.default_rng(0).standard_normal((6, 3))
    whole, found = (describe(samples, labels, 2, np.eye(3)) for labels in (np.zeros(6, dtype=np.int64), None))
    np.testing.assert_array_equal(found[:2], whole[:2])
    assert (found[2:] == -1.0).all()


def test_noise_has_the_scale_of_each_row_and_leaves_absent_classes_alone() -> None:
    samples = np.zeros((100, 400))
    samples[:4] = 2.0
    labels = np.repeat([0, 1], [80, 20])
    plain = describe(samples, labels, 3, np.eye(400))
    noisy = describe(samples, labels, 3, np.eye(400), 0.5, np.random.default_rng(0))
    # The mean of |Laplace noise| is its scale: range 2, over the row's samples times epsilon.
    scales = np.abs(noisy - plain).mean(axis=1)
    expected = 2.0 / 0.5 / np.array([100, 100, 80, 20, np.inf, 80, 20, np.inf])
    np.testing.assert_allclose(scales, expected, rtol=0.2)
    np.testing.assert_array_equal(noisy[[4, 7]], plain[[4, 7]])


def test_directions_are_orthonormal_and_the_same_for_all_clients() -> None:
    narrow, wide = projection(9, 4, 3), projection(4, 9, 3)
    np.testing.assert_allclose(narrow.T @ narrow, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(wide @ wide.T, np.eye(4), atol=1e-12)
    np.testing.assert_array_equal(narrow, projection(9, 4, 3))
    assert not np.allclose(narrow, projection(9, 4, 4))


# Scale and centroids


def test_every_row_is_brought_to_0_to_1_on_its_own() -> None:
    descriptors = np.array([[[0.0, 2.0], [7.0, 7.0]], [[4.0, 1.0], [7.0, 7.0]]])
    scale = RowScale.of(descriptors)
    found = scale.apply(descriptors)
    np.testing.assert_array_equal(found, [[[0, 0.5], [0, 0]], [[1, 0.25], [0, 0]]])
    # A later client is put on the same scale, be it outside; a row in which all were equal tells nothing.
    np.testing.assert_array_equal(scale.apply(np.array([[8.0, -4.0], [9.0, 9.0]])), [[2, -1], [0, 0]])


def test_without_labels_the_first_two_rows_decide() -> None:
    centroids = np.array([[[0.0], [0.0], [1.0]], [[1.0], [1.0], [0.0]]])
    descriptor = np.array([[0.4], [0.4], [-1.0]])
    assert (nearest(descriptor, centroids), nearest(descriptor, centroids, labelled=False)) == (1, 0)


# Knee and clusters


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 1, 1, 5], 1),  # flat, then one steep step
        ([1, 1.1, 1.2, 1.3, 9, 10], 1.3),
        ([0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 9], 3),  # of two steps the last one
        ([1, 2, 3, 4, 5], 5),  # a straight line has none
        ([2, 2, 2, 2], 2),
        ([1, 3], 3),
        ([4], 4),
        ([0, 5, 8, 9, 9.5], 9.5),  # it flattens
    ],
)
def test_knees_by_hand(values: list[float], expected: float) -> None:
    assert knee(np.array(values, dtype=np.float64)) == expected
    # Neither the unit nor the origin matters.
    assert knee(4.0 * np.array(values) + 8.0) == 4.0 * expected + 8.0


def blobs(seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    points = np.repeat(3.0 * rng.standard_normal((4, 3)), 6, axis=0) + 0.3 * rng.standard_normal((24, 3))
    return np.concatenate([points, 9.0 + 6.0 * rng.random((3, 3))])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5])
def test_clusters_are_dbscans_with_each_outlier_alone(seed: int, scale: float) -> None:
    points = blobs(seed)
    labels, radius = density_clusters(points, scale)
    # The radius is the distance of two points, which scikit-learn may compute with another last bit.
    expected = DBSCAN(eps=radius * (1 + 1e-9), min_samples=2).fit_predict(points)
    outliers = expected == -1
    expected[outliers] = 100 + np.arange(outliers.sum())
    np.testing.assert_array_equal(labels, canonical(expected.astype(np.int64)))


def test_four_blobs_and_three_strangers_are_found() -> None:
    row = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
    groups = [row + centre for centre in ([0, 0], [50, 0], [0, 50], [50, 50])]
    points = np.concatenate([*groups, [[300, 0], [-300, 0], [0, 400]]])
    labels, radius = density_clusters(points)
    assert (labels.tolist(), radius) == ([*np.repeat(range(4), 6), 4, 5, 6], 1.0)
    # The ends of two rows are 45 apart, and 50 where one is above the other.
    assert set(density_clusters(points, 50.0)[0]) == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(4))
def test_another_order_of_the_clients_permutes_the_clusters_and_nothing_else(seed: int) -> None:
    points, order = blobs(seed), np.random.default_rng(seed).permutation(27)
    labels, radius = density_clusters(points)
    moved, same = density_clusters(points[order])
    assert radius == same
    np.testing.assert_array_equal(moved, canonical(labels[order]))


def test_few_and_equal_clients() -> None:
    assert density_clusters(np.zeros((1, 2)))[0].tolist() == [0]
    assert density_clusters(np.array([[0.0], [5.0]]))[0].tolist() == [0, 0]
    assert density_clusters(np.zeros((4, 2)))[0].tolist() == [0] * 4
