"""SR-FCA: cross losses, trimmed means, refinements."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from florets.strategies.core.agglomerative import group_by_largest_gap
from florets.strategies.core.aggregate import trimmed_mean, trimmed_means
from florets.strategies.sr_fca.strategy import (
    group_by_largest_ratio,
    mutual,
    pivot_groups,
)
from florets.task.wire import kinds
from tests.method_runs import play

SHORT = ("strategy=sr_fca", "strategy.solo_steps=20", "strategy.refine_every=1")

# Trimmed means


@pytest.mark.parametrize("share", [0.0, 0.1, 0.15, 0.34, 0.49])
def test_the_trimmed_mean_agrees_with_scipys_in_every_order(share: float) -> None:
    rows = np.random.default_rng(0).standard_normal((9, 4))
    np.testing.assert_allclose(trimmed_mean(rows, share), trim_mean(rows, share, axis=0))
    np.testing.assert_array_equal(trimmed_mean(rows[::-1], share), trimmed_mean(rows, share))


def test_counters_and_statistics_are_not_trimmed_and_an_empty_model_stays() -> None:
    bank = np.array([[5.0, 5, 5], [7.0, 7, 7]])
    updates = np.array([[0.0, 1, 0], [1.0, 2, 1], [20.0, 9, 20]])
    integers, untrained = np.array([False, True, False]), np.array([False, False, True])
    found = trimmed_means(bank, updates, np.zeros(3, dtype=np.int64), 0.34, integers, untrained)
    assert found.tolist() == [[1, 9, 7], [7, 7, 7]]


# Cross losses


def test_cross_losses_are_the_mean_of_both() -> None:
    losses = np.array([[0.5, 4.0, np.nan], [2.0, 0.1, 6.0], [1.0, 0.0, 0.2]])
    # The NaN counts as the largest loss, 6.
    assert mutual(losses).tolist() == [[0, 3, 3.5], [3, 0, 3], [3.5, 3, 0]]
    order = [2, 0, 1]
    np.testing.assert_array_equal(mutual(losses[np.ix_(order, order)]), mutual(losses)[np.ix_(order, order)])


def test_the_largest_factor_decides_and_not_the_largest_difference() -> None:
    # Merges at 1, 1, 1, 10 and 30: a factor of 10, then a difference of 20.
    points = np.array([0.0, 1.0, 11.0, 12.0, 42.0, 43.0])
    distances = np.abs(np.subtract.outer(points, points))
    found = group_by_largest_ratio(distances)
    assert found.clusters.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.threshold == pytest.approx(np.sqrt(10))
    assert group_by_largest_gap(distances, "single").clusters.tolist() == [0, 0, 0, 0, 1, 1]
    # What is next to nothing is nothing: 1e-9 to 1e-4 is no factor.
    assert group_by_largest_ratio(np.array([[0, 1e-9, 1.0], [1e-9, 0, 1.0], [1.0, 1.0, 0]])).clusters.tolist() == [
        0,
        0,
        1,
    ]
    assert group_by_largest_ratio(np.zeros((3, 3))).clusters.tolist() == [0, 0, 0]
    order = [5, 2, 0, 4, 1, 3]
    assert group_by_largest_ratio(distances[np.ix_(order, order)]).clusters.tolist() == [0, 1, 2, 0, 2, 1]


def test_a_pivot_takes_its_neighbours_and_not_theirs() -> None:
    # A chain of six, 0.1 apart: single linkage makes one group of it.
    points = 0.1 * np.arange(6)
    distances = np.abs(np.subtract.outer(points, points))
    found = {tuple(pivot_groups(distances, 0.15, np.random.default_rng(seed)).tolist()) for seed in range(40)}
    # Of pivots 1 and 4; of 0, 3 and 5; of 2 and 5, which leave 0 alone.
    assert {(0, 0, 0, 1, 1, 1), (0, 0, 1, 1, 1, 2), (0, 1, 1, 1, 2, 2)} <= found
    assert {max(groups) + 1 for groups in found} == {2, 3}
    # A neighbour is at most as far as the threshold, be that 0.
    assert pivot_groups(np.array([[0.0, 3.0], [3.0, 0.0]]), 3.0, np.random.default_rng(0)).tolist() == [0, 0]
    assert pivot_groups(distances, 0.0, np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4, 5]


# Runs


def test_groups_are_found_and_stay_through_the_refinements() -> None:
    found = play(*SHORT, "num_rounds=4")
    assert [report.phase for report in found.reports] == ["clustering", "clustering", "clustering", "stable"]
    assert found.ari == 1.0
    assert found.models.count == 2
    assert {report.assignment["0"] for report in found.reports} == {0}


@pytest.mark.parametrize("kind", [kinds.TRAIN_ESTIMATE, kinds.LOSSES])
def test_a_client_that_round_1_lost_is_placed_by_its_loss(kind: str) -> None:
    found = play(*SHORT, "train.local_epochs=5", "strategy.refine_steps=0", lost={(kind, 1, 4)})
    assert "4" not in found.reports[0].assignment
    assert found.ari == 1.0
