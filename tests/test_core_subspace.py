"""Subspaces, groups of anchors and soft averages, against explicit sums and SVDs."""

import numpy as np
import pytest

from florets.strategies.core.aggregate import average_models
from florets.strategies.two_phase.moment_descent import (
    centres,
    group_exactly,
    group_within,
    largest_groups,
    num_anchors,
)
from florets.strategies.two_phase.strategy import average_soft
from florets.strategies.two_phase.subspace import (
    Factors,
    leading_bases,
    orthonormal_columns,
    random_bases,
    weighted_mean,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def pair_matrix(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the mean over all ordered pairs of different rows, as the definition has it."""
    n = len(left)
    return sum(np.outer(left[i], right[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def span(basis: np.ndarray) -> np.ndarray:
    return basis @ basis.T


def clients(size: int, all_pairs: bool = True) -> tuple[list[Factors], list[np.ndarray], np.ndarray]:
    """Return three clients with noise around two directions, their matrices and their weights."""
    draw = rng()
    directions = 3 * draw.standard_normal((2, size)) / np.sqrt(size)
    local, matrices = [], []
    for n in (4, 3, 6):
        rows = draw.standard_normal((n, 2)) @ directions + draw.choice([-2, 2]) * directions[n % 2]
        if all_pairs:
            local.append(Factors(rows[None], rows[None], True))
            matrices.append(pair_matrix(rows, rows))
        else:
            local.append(Factors(rows[None, :1], rows[None, 1:2], False))
            matrices.append(np.outer(rows[0], rows[1]))
    return local, matrices, np.array([4.0, 3.0, 6.0])


@pytest.mark.parametrize("size", [12, 150])  # Formed, and as an operator.
@pytest.mark.parametrize("all_pairs", [True, False])
def test_the_direct_basis_spans_the_first_left_singular_vectors_of_the_weighted_mean(size: int, all_pairs: bool):
    local, matrices, weights = clients(size, all_pairs)
    mean = sum(w * y for w, y in zip(weights / weights.sum(), matrices, strict=True))
    (found,) = leading_bases(local, weights, 2, rng())
    expected = np.linalg.svd(mean)[0][:, :2]
    assert span(found) == pytest.approx(span(expected), abs=1e-8)
    again = leading_bases(local, weights, 2, rng())
    assert np.array_equal(found, again[0])


@pytest.mark.parametrize("size", [12, 150])
@pytest.mark.parametrize("value", [0.0, 1e-90])  # The second's square is zero to a float.
def test_a_matrix_of_zeros_has_an_orthonormal_basis_as_well(size: int, value: float):
    rows = np.full((1, 3, size), value)
    (found,) = leading_bases([Factors(rows, rows, True)], np.ones(1), 2, rng())
    assert found.T @ found == pytest.approx(np.eye(2))


def test_many_exchanges_of_the_iteration_end_in_the_singular_vectors():
    _, matrices, weights = clients(12)
    mean = sum(w * y for w, y in zip(weights / weights.sum(), matrices, strict=True))
    bases = random_bases(1, 12, 2, rng())
    assert bases[0].T @ bases[0] == pytest.approx(np.eye(2))
    for _ in range(50):
        bases = weighted_mean([(y.T @ bases[0])[None] for y in matrices], weights)
        bases = orthonormal_columns(weighted_mean([(y @ bases[0])[None] for y in matrices], weights))
    assert span(bases[0]) == pytest.approx(span(np.linalg.svd(mean)[0][:, :2]), abs=1e-8)


def test_terms_are_weighed_by_examples_and_need_a_client():
    terms = [np.full((1, 1, 1), value, dtype=np.float32) for value in (1.0, 5.0)]
    assert weighted_mean(terms, np.array([3.0, 1.0])).item() == 2.0
    with pytest.raises(ValueError, match="no client's term"):
        weighted_mean([], np.ones(0))


def test_anchors_are_grouped_into_exactly_k_or_by_distance():
    estimates = np.array([[0.0], [0.3], [5.0], [9.0], [5.2]])
    assert group_exactly(estimates, 3).tolist() == [0, 0, 1, 2, 1]
    assert group_exactly(np.zeros((4, 2)), 3).max() == 2  # All alike: still three groups.
    assert group_exactly(estimates[:1], 1).tolist() == [0]
    assert group_within(estimates, 1.0).tolist() == [0, 0, 1, 2, 1]
    # A chain: 0 and 0.8 are too far apart, 0.4 is near both.
    assert group_within(np.array([[0.0], [0.8], [0.4]]), 0.5).tolist() == [0, 0, 0]
    assert group_within(estimates, 0.1).tolist() == [0, 1, 2, 3, 4]


def test_of_too_many_groups_the_largest_become_models_and_a_model_without_group_stays():
    kept = largest_groups(np.array([0, 1, 2, 1, 2]), 2)
    assert kept.tolist() == [-1, 0, 1, 0, 1]
    bank = np.array([[7.0], [8.0], [9.0]])
    estimates = np.array([[100.0], [1.0], [2.0], [3.0], [4.0]])
    assert centres(estimates, kept, bank).tolist() == [[2.0], [3.0], [9.0]]


def test_the_number_of_anchors_is_the_papers():
    assert [num_anchors(k) for k in (1, 2, 3, 4)] == [1, 5, 10, 17]


@pytest.mark.parametrize("weighting", ["all_participants", "examples"])
def test_soft_averages_of_hard_labels_are_the_hard_averages(weighting: str):
    draw = rng()
    bank, hard = draw.standard_normal((3, 4)), np.array([0, 1, 1, 0])
    weights, integers = np.array([10.0, 20.0, 5.0, 1.0]), np.zeros(4, dtype=bool)
    updates = np.repeat(bank[None], 4, axis=0)
    updates[np.arange(4), hard] += draw.standard_normal((4, 4))
    expected = average_models(bank, updates[np.arange(4), hard], hard, weights, weighting, integers)
    found = average_soft(bank, updates, np.eye(3)[hard], weights, weighting, integers)
    assert found == pytest.approx(expected)
    assert np.array_equal(found[2], bank[2])


def test_soft_averages_weigh_by_examples_and_divide_by_what_belongs_to_the_model():
    updates = np.array([[[1.0, 3.0]], [[5.0, 4.0]]])
    counters = np.array([False, True])
    memberships, weights = np.array([[0.5], [0.25]]), np.array([2.0, 4.0])
    bank = np.array([[1.0, 0.0]])
    # Changes 0 and 4: 4 * 4 / 6, and 4 * 4 / (2 * 0.5 + 4 * 0.25). The counter keeps its largest value.
    assert average_soft(bank, updates, memberships, weights, "all_participants", counters) == pytest.approx(
        np.array([[1 + 16 / 6, 4.0]])
    )
    assert average_soft(bank, updates, memberships, weights, "examples", counters)[0, 0] == 9.0
