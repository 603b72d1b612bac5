"""FedDrift: distances of models, what merges, and clients that are isolated, move, and come back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

from florets.strategies.base.report import RoundReport
from florets.task.wire import kinds
from florets.zoo.feddrift import FedDrift, concept_distances, losses_on_groups
from tests.fakes import FakeClients, models, steps, thetas
from tests.method_runs import play


def test_a_models_loss_on_a_group_is_the_mean_over_its_clients_samples() -> None:
    losses = np.array([[1.0, 9, 4], [3.0, 9, 8], [5.0, np.inf, 2]])
    found = losses_on_groups(losses, np.array([0, 0, 2]), np.array([1.0, 3, 7]), np.array([0, 2]))
    # Rows are models 0 and 2, columns their groups; what diverged counts as the largest loss, and is not asked for.
    np.testing.assert_allclose(found, [[2.5, 5], [7, 2]])


def test_a_distance_is_the_larger_rise_of_both() -> None:
    losses = np.array([[1.0, 4.0, 0.5], [2.0, 3.5, 3.0], [5.0, 3.0, 2.0]])
    # Of 0 and 1: 4 - 1 and 2 - 3.5. Of 0 and 2: 0.5 - 1 and 5 - 2. Of 1 and 2: 3 - 3.5 and 3 - 2.
    assert concept_distances(losses).tolist() == [[0, 3, 3], [3, 0, 1], [3, 1, 0]]
    order = [2, 0, 1]
    np.testing.assert_array_equal(
        concept_distances(losses[np.ix_(order, order)]), concept_distances(losses)[np.ix_(order, order)]
    )
    # No rise is no distance, whatever the losses are.
    assert concept_distances(np.array([[3.0, 1.0], [2.0, 4.0]])).tolist() == [[0, 0], [0, 0]]


TARGETS = [0.0, 0.25, 10.0, 10.25]


def drift(
    rounds: int, changes: Mapping[int, Mapping[int, float]] | None = None, start: float = 5.0, **own: Any
) -> tuple[list[RoundReport], ArrayRecord, FedDrift, FakeClients]:
    """Play rounds; after some of them clients' targets change."""
    clients = FakeClients(list(TARGETS), faults=own.pop("faults", {}))
    strategy = FedDrift(**{"period": 3, "delta": 0.5, **own})
    reports: list[RoundReport] = []

    def on_round(report: RoundReport, _: ArrayRecord) -> None:
        reports.append(report)
        for client, target in (changes or {}).get(report.server_round, {}).items():
            clients.targets[client] = target  # type: ignore[index]  # a list, above

    result = strategy.start(clients.grid(), models(start), num_rounds=rounds, on_round=on_round)
    return reports, result.arrays, strategy, clients


def test_clients_begin_alone_and_models_of_one_concept_merge_into_their_mean() -> None:
    reports, arrays, _, clients = drift(7, period=6)
    assert [report.assignment for report in reports[:6]] == [{"0": 0, "1": 1, "2": 2, "3": 3}] * 6
    assert reports[0].details == {"concepts": {"isolated": ["0", "1", "2", "3"]}}
    assert reports[6].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert reports[6].details == {"concepts": {"merged": 4}}
    # After six halvings 0 + 5/64 and 1/4 + 4.75/64, whose mean both train half of the way.
    mean = (5 / 64 + 0.25 + 4.75 / 64) / 2
    assert thetas(arrays)[0] == pytest.approx((mean + 0.125) / 2, abs=1e-6)
    assert steps(arrays) == [7, 7]
    assert clients.asked(kinds.LOSSES) == [0, 1, 2, 3]
    assert [report.phase for report in reports] == ["clustering", *["training"] * 5, "clustering"]


def test_a_client_whose_concept_no_model_knows_trains_alone_from_the_best_model() -> None:
    reports, arrays, strategy, _ = drift(10, {9: {3: -20.0}})
    assert reports[9].details == {"concepts": {"isolated": ["3"]}}
    assert reports[9].assignment == {"0": 0, "1": 0, "2": 1, "3": 2}
    # Of the two models the first, near 0, is the better one.
    assert thetas(arrays)[2] == pytest.approx((thetas(arrays)[0] - 20) / 2, abs=0.1)
    assert strategy.state.alone == {"3"}


def test_clients_with_one_new_concept_find_each_other_and_an_old_one_is_known_when_it_returns() -> None:
    new = {1: -20.0, 3: -20.1}
    reports, arrays, strategy, _ = drift(20, {9: new, 15: {1: 0.25}, 18: {1: -20.0}})
    assert [report.assignment for report in reports[9:13:3]] == [
        {"0": 0, "1": 2, "2": 1, "3": 3}, {"0": 0, "1": 2, "2": 1, "3": 2},
    ]  # fmt: skip
    # Asked in rounds 16 and 19: there and back, to the same model.
    assert [reports[number - 1].assignment["1"] for number in (13, 16, 19)] == [2, 0, 2]
    assert len(thetas(arrays)) == 3
    assert strategy.state.alone == set()


def test_whom_nobody_asks_is_alone_to_the_bit() -> None:
    more = ("strategy.fraction_train=0.5", "train=sgd")
    found = play("strategy=feddrift", "strategy.period=100", *more)
    other = play("strategy=local", *more)
    entries, seen = len(play("strategy=fedavg", *more).final), found.strategy.assignment
    for key, number in seen.items():
        place = other.strategy.assignment[key]
        alone = other.final[entries * place : entries * (place + 1)]
        assert found.final[entries * number : entries * (number + 1)] == alone
