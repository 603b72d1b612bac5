"""FedGWC's rewards, interactions and splits, against hand-computed cases and definitions."""

import itertools
import math

import numpy as np
import pytest

from florets.strategies.core.cluster import canonical
from florets.strategies.fedgwc.interactions import (
    MEAN_RATE,
    Interactions,
    affinities,
    best_split,
    gaussian_rewards,
    resting_change,
)
from florets.strategies.fedgwc.strategy import FedGWCSettings

# Rewards


def test_rewards_of_three_clients_by_hand() -> None:
    # Step 1: mean 2, variance 2/3, so that the outer two are at squared distance 1 / (2/3) = 3/2; step 2: all equal.
    losses = np.array([[1.0, 0.5], [2.0, 0.5], [3.0, 0.5]])
    outer = (math.exp(-0.75) + 1) / 2
    np.testing.assert_allclose(gaussian_rewards(losses, np.ones(3)), [outer, 1, outer])


def test_clients_weigh_by_their_examples() -> None:
    # Mean (3 * 1 + 1 * 5) / 4 = 2, variance (3 * 1 + 1 * 9) / 4 = 3.
    found = gaussian_rewards(np.array([[1.0], [5.0]]), np.array([30.0, 10.0]))
    np.testing.assert_allclose(found, [math.exp(-1 / 6), math.exp(-9 / 6)])


def test_equal_losses_have_equal_rewards_whatever_their_rounding() -> None:
    for value in (0.0, 0.1, 1e-30, 7e5):
        assert gaussian_rewards(np.full((7, 3), value), np.arange(1.0, 8)).tolist() == pytest.approx([1.0] * 7)


def test_of_two_clients_the_rewards_say_nothing() -> None:
    np.testing.assert_allclose(gaussian_rewards(np.array([[0.1], [9.0]]), np.ones(2)), [math.exp(-0.5)] * 2)


@pytest.mark.parametrize("claim", [1e30, np.inf])
def test_a_client_that_diverged_counts_as_a_hundred_times_the_median(claim: float) -> None:
    losses = np.array([[1.0], [2.0], [3.0], [claim]])
    held = np.array([[1.0], [2.0], [3.0], [200.0]])
    found = gaussian_rewards(losses, np.ones(4))
    np.testing.assert_array_equal(found, gaussian_rewards(held, np.ones(4)))
    assert np.isfinite(gaussian_rewards(np.full((4, 2), np.inf), np.ones(4))).all()


# Interactions


def test_entries_of_the_participants_move_towards_their_rewards() -> None:
    cluster = Interactions()
    assert cluster.admit(["a", "b", "c", "d"]).tolist() == [0, 1, 2, 3]
    cluster.observe(np.array([0, 2]), np.array([0.3, 0.9]), 0.5, "recent")
    # From 1/16, half of the way to 0.3 / 1.2 and 0.9 / 1.2.
    first, second = 0.5 / 16 + 0.5 * 0.25, 0.5 / 16 + 0.5 * 0.75
    expected = np.full((4, 4), 1 / 16)
    expected[np.ix_([0, 2], [0, 2])] = [[first, first], [second, second]]
    np.testing.assert_allclose(cluster.filled(), expected)
    moved = [first - 1 / 16, second - 1 / 16]
    assert cluster.change == pytest.approx(0.5 + 0.5 * np.mean(np.square(moved)))
    cluster.observe(np.array([2, 1]), np.array([1.0, 1.0]), 0.5, "recent")
    assert cluster.filled()[2].tolist() == pytest.approx([second, 0.5 / 16 + 0.25, 0.5 * second + 0.25, 1 / 16])
    assert cluster.meetings.tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 2, 0], [0, 0, 0, 0]]


def test_all_rounds_count_alike_where_that_is_wanted() -> None:
    cluster, rng = Interactions(), np.random.default_rng(0)
    cluster.admit(list("abcd"))
    seen: dict[tuple[int, int], list[float]] = {}
    for _ in range(9):
        rows, rewards = rng.permutation(4)[:2], rng.random(2)
        cluster.observe(rows, rewards, 0.5, "all")
        for (i, reward), j in itertools.product(zip(rows, rewards / rewards.sum(), strict=True), rows):
            seen.setdefault((i, j), []).append(reward)
    for (i, j), shares in seen.items():
        assert cluster.matrix[i, j] == pytest.approx(np.mean(shares))


def test_the_scale_does_not_depend_on_how_many_replies_were_lost() -> None:
    few, many = Interactions(), Interactions()
    for cluster, rows in ((few, range(2)), (many, range(4))):
        cluster.admit(list("abcdefgh"))
        cluster.observe(np.array(rows), np.full(len(rows), 0.6), 0.5, "recent")
    assert few.matrix[0, 1] == pytest.approx(many.matrix[0, 1])


def test_newcomers_get_a_row_and_those_who_met_few_have_no_say() -> None:
    cluster = Interactions()
    cluster.admit(["a", "b", "c"])
    cluster.observe(np.arange(3), np.ones(3), 0.5, "all")
    assert cluster.admit(["c", "new"]).tolist() == [2, 3]
    assert cluster.meetings[3].tolist() == [0] * 4
    assert cluster.known().tolist() == [0, 1, 2]
    cluster.observe(np.array([2, 3]), np.ones(2), 0.5, "all")
    # One of three others is less than half.
    assert cluster.known().tolist() == [0, 1, 2]
    child = cluster.part(np.array([2, 3]))
    assert (child.members, child.change, child.rests) == (["c", "new"], 1.0, 0)
    np.testing.assert_array_equal(child.matrix, cluster.matrix[2:, 2:])


def test_the_threshold_is_that_of_the_change_at_rest() -> None:
    assert resting_change(1e-5, 0.1, 10) == pytest.approx(1e-5)
    # A long run of independent targets changes by the factor that is computed.
    rng, levels = np.random.default_rng(0), []
    for rate, size in ((0.1, 100), (0.4, 20)):
        participants = round(rate * size)
        targets = rng.normal(1, 0.3, 40_000) / participants
        entry, changes = 1 / participants, []
        for target in targets:
            after = (1 - rate) * entry + rate * target
            changes.append((after - entry) ** 2)
            entry = after
        levels.append(np.mean(changes))
    assert resting_change(1.0, 0.4, 8) == pytest.approx(levels[1] / levels[0], rel=0.05)


# Splits


def blocks(sizes: list[int], noise: float = 0.02, seed: int = 0) -> np.ndarray:
    """Return interactions in which clients reward their own group's company."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    drawn = np.random.default_rng(seed).normal(0, noise, (len(groups), len(groups)))
    return 0.1 + 0.1 * np.equal.outer(groups, groups) + drawn


def test_affinities_by_their_definition() -> None:
    matrix, gamma = np.random.default_rng(1).random((6, 6)), 0.7
    scaled = (matrix - matrix.min()) / (matrix.max() - matrix.min())
    found = affinities(matrix, gamma)
    for j in range(6):
        for k in range(6):
            rest = [row for row in range(6) if row not in (j, k)]
            distance = sum((scaled[row, j] - scaled[row, k]) ** 2 for row in rest)
            assert found[j, k] == pytest.approx(0.0 if j == k else math.exp(-gamma * distance))


def test_own_entries_do_not_count() -> None:
    matrix = blocks([3, 3], 0.0)
    odd = matrix.copy()
    np.fill_diagonal(odd, [0.1, 0.2, 0.15, 0.12, 0.11, 0.18])
    np.testing.assert_allclose(affinities(odd, 1.0), affinities(matrix, 1.0))


@pytest.mark.parametrize("sizes", [[6, 6], [9, 4], [7, 6, 7], [6, 6, 6, 6]])
def test_groups_are_found_in_every_order_of_the_clients(sizes: list[int]) -> None:
    truth = np.repeat(np.arange(len(sizes)), sizes)
    affinity = affinities(blocks(sizes), 1.0)
    found = best_split(affinity, 4, 1.0)
    assert found is not None
    # Of more than two groups some may stay together for the next split, but none is divided.
    whole = [np.unique(found.groups[truth == group]).tolist() for group in range(len(sizes))]
    assert all(len(groups) == 1 for groups in whole)
    assert len(set(map(tuple, whole))) >= 2
    order = np.random.default_rng(2).permutation(len(truth))
    again = best_split(affinity[np.ix_(order, order)], 4, 1.0)
    assert again is not None
    np.testing.assert_array_equal(again.groups, canonical(found.groups[order]))
    assert again.index == pytest.approx(found.index)


def test_without_groups_nothing_is_split() -> None:
    # All columns are equal: everybody took part with everybody.
    rows = np.repeat(np.random.default_rng(0).random((8, 1)), 8, axis=1)
    assert best_split(affinities(rows, 0.1), 4, 1.0) is None
    assert best_split(np.zeros((5, 5)), 4, 1.0) is None
    # Two clients cannot be two groups and be judged.
    assert best_split(affinities(blocks([2, 1]), 0.1), 2, 9.0) is None
    split = [best_split(affinities(blocks([20], seed=seed), 0.1), 2, 1.0) is not None for seed in range(20)]
    assert sum(split) <= 4


def test_an_index_that_is_too_large_splits_nothing() -> None:
    found = best_split(affinities(blocks([6, 6]), 1.0), 2, 1.0)
    assert found is not None
    assert best_split(affinities(blocks([6, 6]), 1.0), 2, found.index) is None


def first_split(gap: float, seed: int, rounds: int) -> tuple[int, list[int]]:
    """Return when twelve clients and eight with higher losses are split, 8 of 20 taking part, and their groups."""
    rng, cluster = np.random.default_rng(seed), Interactions()
    keys = [f"{client:02d}" for client in range(20)]
    cluster.admit(keys)
    for server_round in range(1, rounds + 1):
        rows = np.sort(rng.permutation(20)[:8])
        levels = 1 + gap * (rows >= 12) + 0.2 * rng.standard_normal(8)
        losses = np.abs(levels[:, np.newaxis] + 0.1 * rng.standard_normal((8, 3)))
        cluster.observe(rows, gaussian_rewards(losses, np.ones(8)), 0.4, "all")
        if cluster.change < resting_change(1e-5, MEAN_RATE, 8):
            cluster.change = 1.0
            if (found := best_split(affinities(cluster.filled(), 0.1), 2, 1.0)) is not None:
                return server_round, found.groups.tolist()
    return 0, []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_the_means_of_many_rounds_the_first_split_is_the_right_one(seed: int) -> None:
    server_round, found = first_split(1.0, seed, 200)
    assert 100 < server_round <= 200
    assert found == [0] * 12 + [1] * 8


# Settings


@pytest.mark.parametrize(("rate", "groups"), [(0.5, 2), (0.4, 2), (1 / 3, 3), (0.3, 3), (0.2, 4), (0.1, 4)])
def test_the_rate_bounds_the_groups_of_a_split(rate: float, groups: int) -> None:
    assert FedGWCSettings(fraction_train=rate).groups == groups
    assert FedGWCSettings(fraction_train=rate, most_groups=7).groups == 7
