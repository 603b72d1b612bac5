"""k-FED's server step against a plain rewriting of the algorithm, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.k_fed.strategy import group_centres, main_group


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def column(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)[:, np.newaxis]


def test_far_centres_found_two_groups_and_the_others_join_the_nearer() -> None:
    groups, means = group_centres(column(0, 1, 9, 10), np.arange(4), 2, rng())
    np.testing.assert_array_equal(groups, [0, 0, 1, 1])
    np.testing.assert_array_equal(means, column(0.5, 9.5))


def test_one_clients_centres_are_all_taken_however_near_they_are() -> None:
    # Every client holds a pair that is 1 apart: whichever comes first, its two centres are the two groups.
    centres = column(0, 1, 100, 101)
    owners = np.array([0, 0, 1, 1])
    seen = set()
    for seed in range(10):
        groups, _ = group_centres(centres, owners, 2, np.random.default_rng(seed))
        seen.add(tuple(groups))
    assert seen == {(0, 1, 1, 1), (0, 0, 0, 1)}


@pytest.mark.parametrize(("distinct", "wanted", "found"), [(3, 5, 3), (1, 4, 1), (4, 4, 4)])
def test_there_are_never_more_groups_than_distinct_centres(distinct: int, wanted: int, found: int) -> None:
    centres = np.repeat(column(*range(distinct)), 2, axis=0)
    groups, means = group_centres(centres, np.arange(2 * distinct), wanted, rng())
    assert len(means) == found
    np.testing.assert_array_equal(groups, np.repeat(np.arange(found), 2))


def test_a_centre_that_one_client_sends_twice_counts_once_at_the_start() -> None:
    groups, _ = group_centres(column(5, 5, 5, 5, 9), np.array([0, 0, 1, 1, 2]), 2, rng())
    np.testing.assert_array_equal(groups, [0, 0, 0, 0, 1])


def test_a_client_with_more_centres_than_groups_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 centres for 2 groups.*raise k"):
        group_centres(column(0, 1, 2), np.zeros(3, dtype=np.int64), 2, rng())


def plain(centres: FloatArray, owners: IntArray, k: int, first: int) -> list[set[int]]:
    """Alg. 2 word for word, on lists; groups as sets of rows."""
    chosen = [tuple(row) for row in dict.fromkeys(map(tuple, centres[owners == first]))]
    while len(chosen) < k:
        gaps = [min(np.linalg.norm(np.subtract(row, taken)) for taken in chosen) for row in centres]
        if max(gaps) == 0:
            break
        chosen.append(tuple(centres[int(np.argmax(gaps))]))
    members: dict[int, set[int]] = {}
    for index, row in enumerate(centres):
        nearest = int(np.argmin([np.linalg.norm(np.subtract(row, taken)) for taken in chosen]))
        members.setdefault(nearest, set()).add(index)
    return sorted(members.values(), key=min)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=12, unique=True),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 100),
)
def test_it_is_the_papers_algorithm(points: list[tuple[int, int]], k: int, local: int, seed: int) -> None:
    # Noise of no arithmetic pattern keeps exact ties, which either may break its own way, out of the comparison.
    noise = np.random.default_rng(seed).uniform(0, 0.1, (len(points), 2))
    centres = np.array(points, dtype=np.float64) + noise
    owners = np.arange(len(points)) // min(local, k)
    groups, means = group_centres(centres, owners, k, np.random.default_rng(seed))
    first = int(np.random.default_rng(seed).choice(np.unique(owners)))
    expected = plain(centres, owners, k, first)
    assert [set(np.flatnonzero(groups == g).tolist()) for g in range(len(means))] == expected
    for g, rows in enumerate(expected):
        np.testing.assert_allclose(means[g], centres[sorted(rows)].mean(axis=0))


def test_a_client_belongs_where_most_of_its_samples_are() -> None:
    assert main_group(np.array([2, 0, 2]), np.array([3, 5, 3])) == 2
    assert main_group(np.array([2, 0, 2]), np.array([2, 5, 3])) == 0
    assert main_group(np.array([1]), np.array([7])) == 1
