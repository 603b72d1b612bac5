"""FeSEM: its distances by hand, and the algorithm against fake clients."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from florets.task.wire import kinds
from florets.zoo.fesem import FeSEM, nearest_centres
from tests.fakes import FakeClients, lost, play, thetas

TARGETS = [0.0, 0.2, 10.0, 10.4]


def test_the_nearest_centre_by_hand_and_with_rows_permuted() -> None:
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    vectors = np.array([[1.9, 0.0], [2.0, 0.0], [2.1, 0.0], [0.0, 9.0], [-5.0, -5.0]])
    expected = [0, 0, 1, 2, 0]
    assert nearest_centres(vectors, centres).tolist() == expected
    order = np.array([3, 0, 4, 2, 1])
    assert nearest_centres(vectors[order], centres).tolist() == [expected[row] for row in order]
    # Far from zero the digits that differ are the last ones: inner products lose them.
    assert nearest_centres(1e9 + vectors, 1e9 + centres).tolist() == expected


def test_k_means_of_the_first_round_founds_the_models_and_distances_keep_them() -> None:
    clients = FakeClients(TARGETS, examples=[10, 30, 10, 10])
    strategy = FeSEM()
    seen = play(strategy, clients, 2, 5.0, 5.0)
    assert all(report.assignment == {"0": 0, "1": 0, "2": 1, "3": 1} for report in seen)
    assert [report.details for report in seen] == [{}, {"moved": 0.0}]
    # Round 1: 2.5, 2.6 and 7.5, 7.7, plain means 2.55 and 7.6; then half-way to 0.1 and 10.2.
    assert thetas(strategy.context.models.record) == pytest.approx([1.325, 8.9])
    assert len(clients.asked(kinds.TRAIN)) == len(clients.seen) - 4 - len(clients.asked(kinds.EVALUATE))


def moving(theta: float) -> Any:
    def move(content: Any) -> Any:
        record = content.array_records[kinds.ARRAYS]
        new = Array(np.array([theta], dtype=np.float32))
        content[kinds.ARRAYS] = ArrayRecord({"theta": new, "steps": record["steps"]})
        return content

    return move


def test_a_client_whose_model_comes_near_another_moves() -> None:
    clients = FakeClients(TARGETS, faults={(kinds.TRAIN, 2, 1): moving(9.0)})
    seen = play(FeSEM(), clients, 2, 5.0, 5.0)
    assert seen[-1].assignment == {"0": 0, "1": 1, "2": 1, "3": 1}


def test_a_newcomer_takes_the_model_with_the_lowest_loss() -> None:
    faults = {(kinds.TRAIN, 1, 3): lost, (kinds.LOSSES, 2, 3): lost}
    clients = FakeClients(TARGETS, faults=faults)
    seen = play(FeSEM(), clients, 3, 5.0, 5.0)
    # In round 2 its losses are lost, and it sits out.
    assert (clients.asked(kinds.LOSSES, 2), clients.asked(kinds.TRAIN, 2)) == ([3], [0, 1, 2])
    assert "3" not in seen[1].assignment
    assert seen[2].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
