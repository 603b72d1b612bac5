"""Loss vectors that are lies do not take a model from the others' groups; groups of another scale do."""

import numpy as np
from flwr.app import MetricRecord, RecordDict

from florets.strategies.base.report import RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core.set_aside import copied_rows, drawn_in, far_rows, has_groups, lone_rows, placed
from florets.task.wire import kinds
from tests.fakes import FakeClients, play

ROWS = np.array([[0.0, 3.0], [0.0, -3.0], [2.0, 0.0], [-2.0, 0.0], [80.0, 0.0]])


def test_a_row_is_far_beyond_twice_the_farthest_that_one_benign_row_reaches() -> None:
    # The centre is 0; one row may be a lie, so that 3 is the reference.
    assert far_rows(ROWS, 1).tolist() == [False] * 4 + [True]
    np.testing.assert_allclose(drawn_in(ROWS, 1)[:, 0], [0.0, 0.0, 2.0, -2.0, 6.0])
    assert not far_rows(ROWS[:2], 1).any()


def test_groups_are_there_where_one_more_would_gain_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 5, axis=0) + rng.normal(size=(15, 2))
    assert [has_groups(rows, k, rng) for k in (1, 2, 3, 4)] == [False, False, True, False]


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


def test_rows_of_folds_that_are_another_clients_are_copies_in_any_order_and_near_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    folds = np.repeat(rng.normal(size=(2, 1, 64)), 3, axis=0) + 0.3 * rng.normal(size=(6, 4, 64))
    assert not copied_rows(folds).any()
    folds[5] = 7.0 * folds[0, ::-1]
    assert copied_rows(folds).tolist() == [True, False, False, False, False, True]
    # Two entries may be equal by chance.
    assert not copied_rows(folds[:, :, :2]).any()
