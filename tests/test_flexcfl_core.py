"""FlexCFL's functions on arrays: hand-computed cases, independent computations, and permuted clients."""

import numpy as np
import pytest

from florets.strategies.core.cosine import cosines, unit_rows
from florets.strategies.flexcfl.measures import (
    cosine_differences,
    decomposed_cosines,
    group_updates,
    label_shift,
    mix_groups,
    nearest_direction,
)

RNG = np.random.default_rng(5)
UPDATES = RNG.normal(size=(9, 30))


def grouped(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in labels}


def two_groups(number: int = 10, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Updates along two directions with noise, of clients that take turns."""
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(2, size))
    groups = np.arange(number) % 2
    return directions[groups] * rng.uniform(0.5, 5, (number, 1)) + 0.2 * rng.normal(size=(number, size)), groups


def test_cosines_by_hand() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-8.0, 6.0], [1e200, 0.0], [1e-200, 1e-200]])
    expected = np.array([1.0, 0.0, 0.0, 0.6, 0.7 * np.sqrt(2)])
    assert cosines(vectors)[0] == pytest.approx(expected, abs=1e-15)
    assert np.diagonal(cosines(vectors)).tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert cosines(vectors[:1], vectors[2:]) == pytest.approx(np.array([[0.0, 0.6, 0.7 * np.sqrt(2)]]), abs=1e-15)
    assert unit_rows(vectors)[3].tolist() == [1.0, 0.0]


def test_decomposed_cosines_by_hand_and_by_explicit_directions() -> None:
    # Two orthogonal directions: the first has the larger sum of squares.
    found = decomposed_cosines(np.array([[3.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]), 2)
    assert np.abs(found) == pytest.approx(np.array([[1, 0], [0, 1], [1, 0]]))
    assert found[0, 0] == -found[2, 0]
    # The directions themselves, in the space of parameters.
    values, vectors = np.linalg.eigh(UPDATES.T @ UPDATES)
    directions = vectors[:, np.argsort(-values)[:4]]
    expected = UPDATES @ directions / np.linalg.norm(UPDATES, axis=1, keepdims=True)
    found = decomposed_cosines(UPDATES, 4)
    assert np.abs(found) == pytest.approx(np.abs(expected))
    assert (found.max(axis=0) == np.abs(found).max(axis=0)).all()
    assert decomposed_cosines(UPDATES, 99).shape == (9, 9)
    assert decomposed_cosines(np.zeros((3, 5)), 2).tolist() == [[0.0, 0.0]] * 3
    assert decomposed_cosines(UPDATES * 1e300, 4) == pytest.approx(found)


def test_cosine_differences_by_hand_and_by_the_definition() -> None:
    # e1, e1, e2: the first two see the third alike, and each of them sees the other as itself.
    assert cosine_differences(np.array([[1.0, 0], [2, 0], [0, 1]])).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    similarity = cosines(UPDATES)
    expected = [
        [
            np.mean([abs(similarity[i, z] - similarity[j, z]) for z in range(9) if z not in (i, j)]) if i != j else 0
            for j in range(9)
        ]
        for i in range(9)
    ]
    assert cosine_differences(UPDATES) == pytest.approx(np.array(expected))
    assert cosine_differences(np.array([[1.0, 0], [0, 1]])).tolist() == [[0, 1], [1, 0]]


def test_a_measure_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="'cosine' is unknown: choose one of edc, madc"):
        group_updates(UPDATES, 2, "cosine", RNG)


@pytest.mark.parametrize("measure", ["edc", "madc"])
def test_groups_are_those_of_the_directions_whatever_the_lengths(measure: str) -> None:
    updates, groups = two_groups()
    assert group_updates(updates, 2, measure, np.random.default_rng(0)).tolist() == groups.tolist()


@pytest.mark.parametrize("measure", ["edc", "madc"])
def test_permuting_the_clients_permutes_the_groups_and_nothing_else(measure: str) -> None:
    updates, _ = two_groups()
    order = np.random.default_rng(1).permutation(len(updates))
    plain = group_updates(updates, 3, measure, np.random.default_rng(0))
    moved = group_updates(updates[order], 3, measure, np.random.default_rng(0))
    assert {frozenset(order[list(group)].tolist()) for group in grouped(moved)} == grouped(plain)
    assert np.abs(decomposed_cosines(updates[order], 3)) == pytest.approx(
        np.abs(decomposed_cosines(updates, 3))[order]
    )
    assert cosine_differences(updates[order]) == pytest.approx(cosine_differences(updates)[np.ix_(order, order)])


def test_a_newcomer_joins_the_direction_that_is_nearest_by_its_angle() -> None:
    directions = np.array([[10.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert nearest_direction(np.array([1.0, 0.9]), directions) == 1
    assert nearest_direction(np.array([1.0, -5.0]), directions) == 0
    # Opposite to both directions, and at no angle to what has none.
    assert nearest_direction(np.array([-1.0, -1.0]), directions) == 2


def test_inter_group_aggregation_by_hand() -> None:
    bank = np.array([[3.0, 4.0, 7.0], [0.0, 2.0, 8.0], [5.0, 5.0, 5.0]])
    entries = np.array([True, True, False])
    mixed = mix_groups(bank, 2, 1.0, entries)
    # Lengths 5 and 2: model 0 gets half of model 1, which gets a fifth of model 0.
    assert mixed[0] == pytest.approx([3 / 1.5, 5 / 1.5, 7.0])
    assert mixed[1] == pytest.approx([0.6 / 1.2, 2.8 / 1.2, 8.0])
    assert mixed[2].tolist() == bank[2].tolist()
    assert mix_groups(bank, 3, 0.0, entries).tobytes() == bank.tobytes()
    assert mix_groups(bank, 1, 0.5, entries).tobytes() == bank.tobytes()
    equal = np.array([[1.0, 2.0, 0.0]] * 3)
    assert mix_groups(equal, 3, 0.3, entries) == pytest.approx(equal)
    # However large the rate, models only change places: the norm of none grows.
    assert mix_groups(bank, 2, 1e308, entries)[:2, :2] == pytest.approx(bank[[1, 0], :2])
    zeros = np.zeros((2, 3))
    assert mix_groups(zeros, 2, 0.3, entries).tolist() == zeros.tolist()


def test_label_shift_by_hand() -> None:
    assert label_shift(np.array([5, 5, 0]), np.array([10, 10, 0])) == 0.0
    assert label_shift(np.array([5, 5, 0]), np.array([5, 0, 5])) == pytest.approx(1.0)
    # Two classes that change places are a shift: as samples of one variable, the counts would be equal.
    assert label_shift(np.array([9, 1]), np.array([1, 9])) == pytest.approx(1.6)
    assert label_shift(np.array([10, 0]), np.array([0, 3])) == 2.0
