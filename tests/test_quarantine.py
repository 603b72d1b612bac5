"""Quarantine of clients whose updates depart from their group's, and their return."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.report import ADVICE, QUARANTINE, RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core import FloatArray
from florets.strategies.core.quarantine import AGREES, DEPARTS, UNKNOWN, Quarantine, agreement, verdicts
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, play

EVERYBODY = np.ones(5, dtype=bool)


def gram(*rows: list[float]) -> FloatArray:
    changes = np.array(rows)
    return np.asarray(changes @ changes.T)


def test_agreement_is_the_cosine_with_the_others_whatever_their_lengths() -> None:
    # The geometric median of two equal and one other direction is the two's.
    found = agreement(gram([3.0, 0.0], [40.0, 0.0], [0.0, 0.5]), np.ones(3, dtype=bool))
    np.testing.assert_allclose(found, [1.0, 1.0, 0.0], atol=2e-3)
    # Only the trusted judge.
    found = agreement(gram([1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]), np.array([True, True, True, False]))
    np.testing.assert_allclose(found[3], -1.0, atol=2e-3)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([-1.0, 0.0], DEPARTS),
        ([-10.0, 1.0], DEPARTS),
        ([50.0, 1.0], AGREES),  # long, but where the others go
        ([0.0, 1.0], UNKNOWN),  # of other data perhaps
        ([0.0, 5.0], DEPARTS),  # noise, and long
    ],
)
def test_an_opposed_update_and_long_noise_depart_and_a_long_one_does_not(last: list[float], said: int) -> None:
    near = [[1.0, 0.1], [1.0, -0.1], [1.0, 0.05], [1.0, 0.0]]
    found, _ = verdicts(gram(*near, last), EVERYBODY)
    assert found.tolist() == [AGREES] * 4 + [said]


def test_three_departures_running_and_no_more_clients_than_may_be_hostile() -> None:
    quarantine, keys = Quarantine(), list("abcdefg")
    rows = gram(*[[1.0, 0.0]] * 5, [-1.0, 0.0], [-1.0, 0.2])
    found = []
    for _ in range(3):
        quarantine.observe(0, keys, rows, 1)
        found.append(sorted(quarantine.clients))
    assert found == [[], [], ["f"]]
    # In another group counting begins anew.
    other, found = Quarantine(), []
    for model in (0, 0, 1, 1, 1):
        other.observe(model, keys, rows, 2)
        found.append(sorted(other.clients))
    assert found == [[], [], [], [], ["f", "g"]]
    assert decode(encode(other, {}), {}) == other


def flipped(content: RecordDict) -> RecordDict:
    """An update of the fake client that goes the other way: (theta + target) / 2 with target 0 is theta / 2."""
    record = content.array_records[kinds.ARRAYS]
    content[kinds.ARRAYS] = ArrayRecord({**record, "theta": Array(record["theta"].numpy() * 3)})
    return content


def test_a_client_in_quarantine_counts_for_nothing_and_returns(caplog: pytest.LogCaptureFixture) -> None:
    clients = FakeClients(targets=[0.0] * 5 + [10.0] * 3, faults={("train", r, 0): flipped for r in (1, 2, 3)})
    strategy = CLoVE(k=2, first_round="evaluate", robust="median")
    with caplog.at_level(logging.INFO, "florets"):
        reports = play(strategy, clients, 7, 1.0, 9.0)
    kept = [report.clients["0"].kept for report in reports]
    assert kept[2:5] == [0.0, 0.0, 0.0]
    assert kept[5]
    assert [QUARANTINE in report.details for report in reports] == [False, False, True, True, True, False, False]
    assert "client 0 is in quarantine from round 3 on" in str(reports[2].details[ADVICE])
    assert ADVICE not in reports[3].details
    assert "0" in reports[3].evaluations
    assert "client 0 has left quarantine" in caplog.text


def test_a_client_whose_data_change_moves_to_the_group_that_fits_and_counts_there() -> None:
    clients = FakeClients(targets=[0.0] * 5 + [10.0] * 3)
    seen: list[RoundReport] = []

    def drift(report: RoundReport, _: ArrayRecord) -> None:
        seen.append(report)
        if report.server_round == 5:
            clients.targets = [10.0, *clients.targets[1:]]

    strategy = CLoVE(k=2, first_round="evaluate", robust="clip")
    strategy.start(clients.grid(), models(1.0, 9.0), num_rounds=12, on_round=drift)
    assert [report.assignment["0"] for report in seen] == [0] * 8 + [1] * 4
    assert [QUARANTINE in report.details for report in seen] == [False] * 7 + [True] * 3 + [False] * 2
    assert strategy.state.quarantine is not None
    assert not strategy.state.quarantine.clients
