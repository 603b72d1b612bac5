"""CFL-S against fake clients: splits, clients that were away, the bound on models; and a run that is killed."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from florets.conf.compose import compose
from florets.task.wire import kinds
from florets.zoo.cfl_s import CFLS, Halves, bipartition
from florets.zoo.shared.directions import cosines
from tests.fakes import FakeClients, lost, play, thetas

# Two groups of two each; from a model of 0 the first half moves down.
NESTED = [-20.0, 5.0, -5.0, 19.0, -19.0, 4.0, -4.0, 20.0]


def cfl_s(**settings: Any) -> CFLS:
    """Return the strategy without the tests of its models, which take most of a fake run's time."""
    return CFLS(eval_every=99, **settings)


def nested_groups(assignment: dict[str, int]) -> dict[int, set[str]]:
    return {model: {key for key, own in assignment.items() if own == model} for model in set(assignment.values())}


def test_clients_are_split_twice_under_their_own_names() -> None:
    clients = FakeClients(NESTED)
    strategy = cfl_s()
    seen = play(strategy, clients, 12, 0.0)
    assert seen[0].num_clusters == 2
    assert {frozenset(keys) for keys in nested_groups(dict(seen[0].assignment)).values()} == {
        frozenset("0246"),
        frozenset("1357"),
    }
    final = dict(seen[-1].assignment)
    assert sorted(map(sorted, nested_groups(final).values())) == [["0", "4"], ["1", "5"], ["2", "6"], ["3", "7"]]
    # Four models, and each comes near to the mean of its own clients.
    found = thetas(strategy.context.models.record)
    assert len(found) == 4
    assert [found[final[key]] for key in "0123"] == pytest.approx([-19.5, 4.5, -4.5, 19.5], abs=1.0)
    # Nobody was away: no exchange but training.
    assert len(clients.asked(kinds.TRAIN)) == 8 * 12


def test_halves_go_on_from_their_clusters_model_and_the_first_client_keeps_its_number() -> None:
    strategy = cfl_s(k=2)
    seen = play(strategy, FakeClients([1.0, 2.0, -1.0, -3.0]), 1, 0.25)
    assert seen[0].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    # Both are the mean of what came back: (0.625 + 1.125 - 0.375 - 1.375) / 4.
    assert thetas(strategy.context.models.record) == [0.0, 0.0]
    assert seen[0].details["models"] == 2.0
    assert seen[0].details["mean_norm"] == [0.25]
    assert seen[0].details["median_norm"] == [0.625]
    assert seen[0].details["largest_norm"] == [1.625]


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({}, 1),
        ({"first_split": 3}, 3),
        ({"thresholds": "absolute", "mean_threshold": 1.0, "client_threshold": 4.8}, 1),
        ({"thresholds": "absolute", "mean_threshold": 1.0, "client_threshold": 5.0}, None),
        ({"thresholds": "absolute", "mean_threshold": 0.3}, 2),
        ({"k": 1}, None),
    ],
)
def test_when_a_cluster_is_split(settings: dict[str, Any], rounds: int | None) -> None:
    # In round 1 the mean update is -0.4, and the largest -4.9; in round 2 they are -0.2 and -4.7.
    seen = play(cfl_s(**settings), FakeClients([-9.0, -8.0, 8.0, 9.0]), 4, 0.8)
    assert next((report.server_round for report in seen if report.num_clusters > 1), None) == rounds


def test_who_was_away_at_a_split_goes_down_the_tree_when_it_takes_part() -> None:
    faults = {(kinds.TRAIN, server_round, 4): lost for server_round in range(1, 8)}
    clients = FakeClients(NESTED, faults=faults)
    strategy = cfl_s()
    seen = play(strategy, clients, 9, 0.0)
    # At first it has no model at all; its cluster was split twice, so that three exchanges bring it to its model.
    assert "4" not in seen[6].assignment
    assert clients.asked(kinds.TRAIN, 7).count(4) == 1
    assert clients.asked(kinds.TRAIN, 8).count(4) == 3
    final = seen[-1].assignment
    assert final["4"] == final["0"] != final["2"]
    # It trains with its group from then on: its place is known.
    assert clients.asked(kinds.TRAIN, 9).count(4) == 1


def test_k_bounds_the_number_of_models_where_it_is_given_by_hand() -> None:
    assert compose(["strategy=cfl_s"]).k == "auto"
    assert compose(["strategy=cfl_s", "k=3"]).k == 3
    strategy = cfl_s(k=3)
    play(strategy, FakeClients(NESTED), 6, 0.0)
    assert strategy.context.models.count == 3


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
