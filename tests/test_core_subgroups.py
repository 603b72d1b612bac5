"""Sharpness of groups, and the tree of groups within groups."""

import numpy as np
import pytest

from florets.strategies.core import FloatArray
from florets.strategies.core.folds import centred_rows
from florets.strategies.core.subgroups import Node, spread, tree_of
from tests.test_core_folds import planted, truth


def nested(seed: int, near: float = 1.0, each: int = 6, width: int = 60) -> FloatArray:
    """Two groups far apart of two groups each; rows have noise of about unit length."""
    rng = np.random.default_rng(seed)
    far, own = rng.standard_normal((2, 2, width)) / np.sqrt(width)
    means = np.repeat(2.0 * far, 2, axis=0) + near * np.concatenate([own, own[::-1]])
    noise = rng.standard_normal((4 * each, 4, width)) / np.sqrt(width)
    return np.repeat(means, each, axis=0)[:, None] + noise


def tree(folds: FloatArray, labels: np.ndarray) -> Node:
    rng, everybody = np.random.default_rng(1), np.ones(len(folds), dtype=bool)
    return tree_of(folds, labels, 0.01, 0.05, rng, everybody)


def shape(node: Node) -> object:
    return [shape(part) for part in node.parts] if node.parts else node.members.tolist()


def test_spread_by_hand() -> None:
    # On a line at -3, -1, 1, 3 in both folds: groups around -2 and 2, each with a variance of 2, 4 apart.
    rows = np.tile(np.array([-3.0, -1.0, 1.0, 3.0])[None, :, None], (2, 1, 1))
    assert spread(rows, np.array([0, 0, 1, 1]), np.random.default_rng(0)).share == pytest.approx(2 / 16)


def test_noise_is_no_spread() -> None:
    # The members of each group trade places between the folds: what they have of their own does not last.
    rows = np.array([[-3.0, -1.0, 1.0, 3.0], [-1.0, -3.0, 3.0, 1.0]])[:, :, None]
    found = spread(rows, np.array([0, 0, 1, 1]), np.random.default_rng(0))
    assert found.share == pytest.approx(-2 / 16)
    assert found.is_sharp


def test_a_line_is_a_continuum_and_groups_with_effects_of_their_clients_are_sharp() -> None:
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((24, 4, 60)) / np.sqrt(60)
    line = np.linspace(0.0, 6.0, 24)[:, None, None] * np.eye(60)[0] + noise
    labels = np.repeat(np.arange(3), 8)
    assert not spread(centred_rows(line + 3.0 * np.eye(60)[1]), labels, rng).is_sharp
    effects = 0.7 * rng.standard_normal((24, 1, 60)) / np.sqrt(60)
    assert spread(centred_rows(planted([8, 8, 8], 1, signal=2.0) + effects), labels, rng).is_sharp


@pytest.mark.slow
def test_the_p_value_of_spread_holds_its_level_in_sharp_groups() -> None:
    """Of 120 federations of two groups, a fifth have a p value of at most 0.2."""
    rng = np.random.default_rng(5)
    p_values = [
        spread(centred_rows(planted([5, 7], seed, signal=2.0, width=8)), truth([5, 7]), rng).p_value
        for seed in range(120)
    ]
    # Three standard errors of a share of 0.2.
    assert abs(np.mean(np.array(p_values) <= 0.2) - 0.2) <= 0.11


@pytest.mark.parametrize("found", [[0, 0, 1, 2]])
def test_groups_within_groups_whatever_the_number_of_groups_that_was_found(found: list[int]) -> None:
    members = [list(range(6 * group, 6 * group + 6)) for group in range(4)]
    root = tree(nested(2), np.repeat(found, 6))
    assert sorted(sorted(map(tuple, half)) for half in shape(root)) == [  # type: ignore[attr-defined]
        [tuple(members[0]), tuple(members[1])],
        [tuple(members[2]), tuple(members[3])],
    ]
    assert root.labels(24).tolist() == truth([6] * 4).tolist()
    assert root.depth == 2
    # Half of the clients are tested at half of the level.
    assert all(part.p_value <= 0.025 and part.height < root.height for part in root.parts)


def test_groups_that_differ_alike_are_on_one_level() -> None:
    root = tree(planted([5, 5, 5, 5], 0, signal=2.0), truth([5] * 4))
    assert root.depth == 1
    assert len(root.parts) == 4
    assert root.height > 0.0


@pytest.mark.slow
def test_groups_of_equal_clients_are_seldom_divided() -> None:
    """At a level of 5 % for the whole tree, in at most 5 of 40 federations; 2 are expected."""
    divided = sum(tree(planted([6, 6], seed, signal=2.0), truth([6, 6])).depth > 1 for seed in range(40))
    assert divided <= 5
