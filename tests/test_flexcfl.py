"""FlexCFL against fake clients: cold starts, groups that stay, newcomers, and what goes wrong."""

from typing import Any

import numpy as np
import pytest

from florets.task.wire import kinds
from florets.zoo.flexcfl import FlexCFL
from florets.zoo.shared.directions import cosines, unit_rows
from tests.fakes import FakeClients, play, thetas

# From a model of 0 two clients move down and two move up.
TARGETS = [-1.0, -3.0, 10.0, 12.0]
SEED = 0


def flexcfl(**settings: Any) -> FlexCFL:
    return FlexCFL(num_outputs=2, **settings)


def test_groups_come_from_the_directions_of_cold_starts_and_stay() -> None:
    clients = FakeClients(TARGETS, examples=[10, 30, 10, 10])
    strategy = flexcfl()
    seen = play(strategy, clients, 3, 0.0, 0.0)
    assert [report.phase for report in seen] == ["clustering", "stable", "stable"]
    assert all(report.assignment == {"0": 0, "1": 0, "2": 1, "3": 1} for report in seen)
    assert clients.asked(kinds.TRAIN_ESTIMATE) == clients.asked(kinds.TRAIN_ESTIMATE, 1) == [0, 1, 2, 3]
    assert [report.details for report in seen] == [{"cold_started": 4.0}, {}, {}]
    cold = [config for (kind, _, _), config in zip(clients.seen, clients.configs, strict=True) if "estimate" in kind]
    assert {config["local-steps"] for config in cold} == {50}
    # A group starts from the plain mean of its cold starts, -2 and 11, and nears the mean by examples, -2.5 and 11.
    assert thetas(strategy.context.models.record) == pytest.approx([-2.5 + 0.5 / 8, 11.0])


def test_some_clients_form_the_groups_and_the_others_join_when_they_take_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("florets.zoo.flexcfl.FOUNDERS", 1)
    clients = FakeClients([-1.0, -3.0, 10.0, 12.0, -2.0, 11.0])
    seen = play(flexcfl(fraction_train=0.5, seed=SEED), clients, 6, 0.0, 0.0)
    first = clients.asked(kinds.TRAIN_ESTIMATE, 1)
    founders, participants = first[:2], {int(key) for key in seen[0].participants}
    # The seed draws one founder of each group, who are cold-started first, and then whoever else takes part.
    assert len({founder in (0, 1, 4) for founder in founders}) == 2
    assert set(first[2:]) == participants - set(founders)
    # Each client is cold-started once, be it a founder or a newcomer.
    assert sorted(clients.asked(kinds.TRAIN_ESTIMATE)) == [0, 1, 2, 3, 4, 5]
    assigned = seen[-1].assignment
    assert len({assigned[key] for key in "014"}) == len({assigned[key] for key in "235"}) == 1
    assert assigned["0"] != assigned["2"]


def test_cosines_by_hand() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-8.0, 6.0], [1e200, 0.0], [1e-200, 1e-200]])
    expected = np.array([1.0, 0.0, 0.0, 0.6, 0.7 * np.sqrt(2)])
    assert cosines(vectors)[0] == pytest.approx(expected, abs=1e-15)
    assert np.diagonal(cosines(vectors)).tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert cosines(vectors[:1], vectors[2:]) == pytest.approx(np.array([[0.0, 0.6, 0.7 * np.sqrt(2)]]), abs=1e-15)
    assert unit_rows(vectors)[3].tolist() == [1.0, 0.0]
