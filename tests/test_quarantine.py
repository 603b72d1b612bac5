"""Hostile clients: quarantine, their return, and loss vectors that are set aside."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.report import ADVICE, QUARANTINE, RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core import FloatArray
from florets.strategies.core.quarantine import (
    AGREES,
    DEPARTS,
    UNKNOWN,
    Quarantine,
    agreement,
    far_rows,
    has_groups,
    lone_rows,
    placed,
    verdicts,
)
from florets.task.wire import kinds
from tests.fakes import FakeClients, play

# Quarantine of clients whose updates depart from their group
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
    ],
)
def test_an_opposed_update_departs_and_a_long_one_does_not(last: list[float], said: int) -> None:
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


# Loss vectors that are lies
ROWS = np.array([[0.0, 3.0], [0.0, -3.0], [2.0, 0.0], [-2.0, 0.0], [80.0, 0.0]])


def test_a_row_is_far_beyond_twice_the_farthest_that_one_benign_row_reaches() -> None:
    # The centre is 0; one row may be a lie, so that 3 is the reference.
    assert far_rows(ROWS, 1).tolist() == [False] * 4 + [True]
    assert not far_rows(ROWS[:2], 1).any()


def test_groups_are_there_where_one_more_would_gain_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 5, axis=0) + rng.normal(size=(15, 2))
    assert [has_groups(rows, k, rng) for k in (2, 3, 4)] == [False, True, False]


TWO_GROUPS = np.array([[4.0, 4.0], [4.0, 4.2], [4.2, 4.0], [4.2, 4.2], [-4.0, 4.0], [-4.0, 4.2], [-4.2, 4.0]])


def test_a_row_of_no_clear_group_is_lone_unless_there_are_as_many_as_a_group_may_have() -> None:
    rng = np.random.default_rng(0)

    def lone(rows: list[list[float]], groups: int = 2) -> list[int]:
        return np.flatnonzero(lone_rows(np.array([*TWO_GROUPS, *rows]), groups, 2, rng)).tolist()

    assert lone([]) == []
    # The opposite of a group, and no direction at all.
    assert lone([[-4.0, -4.0], [0.0, 0.1]]) == [7, 8]
    # A member that is less like the others; two that agree, where the smallest group has three; three lone ones.
    assert (
        lone([[4.0, 5.5]]) == lone([[4.0, -4.0], [4.0, -4.2]]) == lone([[4.0, -4.0], [0.0, -9.0], [-9.0, -9.0]]) == []
    )
    # Far ones may be as many as the smallest group has, and be alike.
    assert lone([[-400.0, -400.0], [-400.0, -400.2]]) == [7, 8]
    # With one group too many none is clear.
    assert lone([[-4.0, -4.0]], groups=3) == []


def test_rows_set_aside_move_no_centroid_and_are_placed_by_the_nearest() -> None:
    aside = np.array([False, False, False, False, True])
    found = placed(ROWS, aside, lambda rows: (rows[:, 1] == 0.0).astype(np.int64) + (rows[:, 0] < 0.0))
    assert found.tolist() == [0, 0, 1, 2, 1]


def claims_the_first(content: RecordDict) -> RecordDict:
    (record,) = content.metric_records.values()
    count = len(record["losses"])  # type: ignore[arg-type]
    content[kinds.METRICS] = MetricRecord({**record, "losses": [0.0, *[9e3] * (count - 1)]})
    return content


def far_off(content: RecordDict) -> RecordDict:
    (record,) = content.metric_records.values()
    content[kinds.METRICS] = MetricRecord({**record, "losses": [5e3] * len(record["losses"])})  # type: ignore[arg-type]
    return content


@pytest.mark.parametrize("k", [1, 2])
def test_of_one_group_nobody_is_set_aside_and_every_update_counts(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    monkeypatch.setattr(CLoVE, "_number", lambda *_: k)
    clients = FakeClients(targets=[0.0] * 5 + [10.0] * 5, faults={(kinds.LOSSES, 2, 9): far_off})
    last = play(CLoVE(k=2, first_round="evaluate", robust="median"), clients, 2, 1.0, 9.0)[-1]
    assert (last.clients["9"].kept == 0.0) == (k == 2)


def reports_of(robust: str) -> list[RoundReport]:
    """Four groups of four at nearly the same place, and four clients that claim one model."""
    targets = [place + 0.001 * spread for place in (1.0, 1.1, 1.2, 1.3) for spread in range(4)] + [1.0] * 4
    faults = {(kinds.LOSSES, r, c): claims_the_first for r in range(1, 7) for c in range(16, 20)}
    clients = FakeClients(targets=targets, faults=faults, keys=[f"{c:02}" for c in range(20)])
    return play(CLoVE(k=4, first_round="evaluate", robust=robust), clients, 4, 3.0, 3.02, 3.04, 3.06)


def test_clients_that_claim_one_model_are_in_quarantine_and_the_others_keep_their_groups() -> None:
    liars = ["16", "17", "18", "19"]
    last = reports_of("median")[-1]
    assert last.details["quarantine"] == {"clients": liars}
    models = [last.assignment[f"{c:02}"] for c in range(16)]
    assert [len(set(models[begin : begin + 4])) for begin in (0, 4, 8, 12)] == [1] * 4
    assert len(set(models)) == 4
    # Without, they have a model for themselves.
    before = reports_of("none")[-1].assignment
    assert len({before[f"{c:02}"] for c in range(16)}) < 4
