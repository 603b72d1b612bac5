"""CFL-S's functions: hand-computed cases, all bipartitions tried out, permuted clients, and the tree of clusters."""

from itertools import product

import numpy as np
import pytest

from florets.strategies.base.models import Models
from florets.strategies.cfl_s.bipartition import Halves, Norms, bipartition
from florets.strategies.cfl_s.strategy import Split, Tree
from florets.strategies.core.cosine import cosines
from tests.fakes import models


def test_norms_by_hand() -> None:
    norms = Norms.of(np.array([[3.0, 4.0], [-3.0, 0.0], [0.0, -1.0], [0.0, 9.0]]))
    assert (norms.mean, norms.median, norms.largest) == (3.0, 3.0, 9.0)
    # One of 4 examples at 3 and two of one at -6 each: the model of their average by examples rests.
    updates, examples = np.array([[3.0], [-6.0], [-6.0]]), np.array([4.0, 1.0, 1.0])
    assert [Norms.of(updates, weights).mean for weights in (None, examples)] == [3.0, 0.0]


@pytest.mark.parametrize(
    ("eps_1", "eps_2", "scale", "rests"),
    [
        (3.1, 8.9, None, True),
        (3.0, 8.9, None, False),
        (3.1, 9.0, None, False),
        # The mean's norm is that of the median client, which is a third of the scale.
        (1.1, 0.3, 9.0, True),
        (1.0, 0.3, 9.0, False),
        (1.1, 0.4, 9.0, False),
    ],
)
def test_a_cluster_rests_while_its_clients_do_not(
    eps_1: float, eps_2: float, scale: float | None, rests: bool
) -> None:
    assert Norms(3.0, 3.0, 9.0).rest(eps_1, eps_2, scale) is rests


def test_a_bipartition_by_hand() -> None:
    # Directions at 0, 10, 80 and 200 degrees; clients 0 and 1 are nearest to each other, then 1 and 2.
    degrees = np.deg2rad([0.0, 10.0, 80.0, 200.0])
    updates = np.stack([np.cos(degrees), np.sin(degrees)], axis=1) * np.array([[1.0], [5.0], [2.0], [9.0]])
    found = bipartition(updates, "single")
    assert found.groups.tolist() == [0, 0, 0, 1]
    assert found.across == pytest.approx(np.cos(np.deg2rad(120)))
    within = np.mean(np.cos(np.deg2rad([10.0, 80.0, 70.0])))
    assert (found.within, found.gap) == pytest.approx((within, within + 0.5))
    assert Halves(found.groups, across=0.25, within=0.75).gap == 0.5


def test_complete_linkage_merges_by_the_least_similar_pair() -> None:
    # At 0, 40, 82 and 126 degrees: single linkage chains, complete linkage makes pairs.
    degrees = np.deg2rad([0.0, 40.0, 82.0, 126.0])
    updates = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
    assert bipartition(updates, "single").groups.tolist() == [0, 0, 0, 1]
    assert bipartition(updates, "complete").groups.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_no_other_bipartition_has_a_smaller_largest_similarity_across(seed: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(8, 4))
    similarity = cosines(updates)
    across = []
    for rest in product([0, 1], repeat=7):
        groups = np.array([0, *rest])
        if groups.any():
            across.append(similarity[np.ix_(groups == 0, groups == 1)].max())
    assert bipartition(updates, "single").across == pytest.approx(min(across), abs=1e-12)


@pytest.mark.parametrize("linkage", ["single", "complete"])
def test_permuting_the_clients_permutes_the_halves_and_nothing_else(linkage: str) -> None:
    rng = np.random.default_rng(2)
    updates, order = rng.normal(size=(9, 5)), rng.permutation(9)
    plain, moved = bipartition(updates, linkage), bipartition(updates[order], linkage)
    expected = plain.groups[order]
    assert moved.groups.tolist() == np.abs(expected - expected[0]).tolist()
    assert (moved.across, moved.within) == pytest.approx((plain.across, plain.within))
    norms, others = Norms.of(updates), Norms.of(updates[order])
    assert (others.mean, others.median, others.largest) == pytest.approx((norms.mean, norms.median, norms.largest))


def test_clients_keep_their_places_through_successive_splits() -> None:
    start, directions = Models(models(1.0)), np.array([[1.0, 0.0], [0.0, 1.0]])
    tree = Tree()
    assert (tree.place("new"), tree.clusters) == (0, {0: 0})
    tree.split(0, start, directions, (["a", "d", "e", "f"], ["b", "c"]))
    assert [tree.model(tree.place(key)) for key in "abcdef"] == [0, 1, 1, 0, 0, 0]
    # Positions within a half are not numbers of clients: "d" is second there and "b" is second of all.
    tree.split(tree.clusters[0], start, directions, (["d", "f"], ["a"]))
    tree.split(tree.clusters[1], start, directions, (["c"], ["b"]))
    # "e" was away at the second split: it waits at the node that was split, with the model of its larger half.
    assert [tree.model(tree.place(key)) for key in "abcdef"] == [2, 3, 1, 0, 0, 0]
    waiting = tree.split_at(tree.place("e"))
    assert waiting is not None
    assert tree.split_at(tree.place("d")) is None
    assert sorted(tree.clusters) == [0, 1, 2, 3]
    tree.places["e"] = waiting.nearest(np.array([1.0, 5.0]))
    assert tree.model(tree.place("e")) == 2


def test_a_client_joins_the_half_that_is_nearest_by_its_angle() -> None:
    split = Split(Models(models(1.0)), np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32), (5, 7))
    assert [split.nearest(np.array(update)) for update in ([9.0, 1.0], [0.1, 0.1], [-1.0, 0.1])] == [5, 7, 7]
