"""Groups from noised sums: what one client changes, and centres by moments."""

from typing import Any

import numpy as np

from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.noised_groups import PARTS, centres_of, noised_groups


def grouped(sizes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of clients in groups of orthogonal directions, with a common part, and noise in each fold."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centres = np.eye(8)[labels] + 0.5
    return centres[:, None] + rng.normal(0, 0.3, (len(labels), 2, 8)), labels


def test_one_client_changes_each_sum_by_its_norm() -> None:
    data, _ = grouped([7, 7, 7], 3)
    logs: list[list[Any]] = [[], []]
    for log, kept in zip(logs, (data, np.concatenate([np.zeros((1, 2, 8)), data[1:]])), strict=True):

        def released(total: Any, norm: float, parts: int, log: list[Any] = log) -> Any:
            log.append((total, norm, parts))
            return total

        noised_groups(kept, 3, np.random.default_rng(1), released)
    assert sum(parts for _, _, parts in logs[0]) == PARTS
    # The mean alone: later sums are of vectors relative to the mean that was released.
    assert np.linalg.norm(logs[0][0][0] - logs[1][0][0]) <= logs[0][0][1] == 1.0


def test_moments_give_the_centres_of_unequal_groups() -> None:
    # A fifth of the points at 4 and the others at -1: mean 0, second moment 4, third 12.
    centres = centres_of(np.array([4.0]), np.full((1, 1, 1), 12.0), np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(centres[:, 0]), [-1.0, 4.0])
    # An equilateral triangle of radius 2: second moments 2, third E[x^3] = 2 and E[x y^2] = -2.
    third = np.zeros((2, 2, 2))
    third[0, 0, 0] = 2.0
    third[0, 1, 1] = third[1, 0, 1] = third[1, 1, 0] = -2.0
    centres = centres_of(np.array([2.0, 2.0]), third, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(centres[:, 0]), [-1.0, -1.0, 2.0], atol=1e-6)


def test_many_clients_are_grouped_under_noise() -> None:
    rows, truth = grouped([90, 60, 50], 1)
    for deviation, least in ((0.0, 0.95), (3.0, 0.9)):
        rng = np.random.default_rng(2)
        labels = noised_groups(
            rows,
            3,
            rng,
            lambda total, norm, parts: total + rng.normal(0, deviation * norm / parts**0.5, total.shape),  # noqa: B023
        )
        assert adjusted_rand_index(truth.tolist(), labels.tolist()) > least
