"""Loss vectors that are lies do not take a model from the others' groups; groups of another scale do."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict

from florets.strategies.base.report import RoundReport, State
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core import FloatArray
from florets.strategies.core.quarantine import Quarantine
from florets.strategies.core.robust import RobustRule
from florets.strategies.core.set_aside import copied_rows, drawn_in, far_rows, has_groups, lone_rows, placed
from florets.strategies.shared.bounded_rows import bounded_moves, without_strangers
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


def test_strangers_are_in_quarantine_at_once_and_one_that_has_left_it_is_only_set_aside() -> None:
    rule, state = RobustRule("median", 0.25), State(quarantine=Quarantine(cleared={"h"}))
    context: Any = SimpleNamespace(averaging=SimpleNamespace(robust=rule), random=np.random.default_rng)
    rows = np.array([*TWO_GROUPS, [-4.0, -4.0], [4.0, -4.0]])
    asked = []

    def rows_of(others: np.ndarray) -> FloatArray:
        asked.append(int(others.sum()))
        return rows

    _, away = without_strangers(state, context, list("abcdefghi"), rows_of, 2)
    assert np.flatnonzero(away).tolist() == [7, 8]
    assert state.quarantine is not None
    assert list(state.quarantine.clients) == ["i"]
    # Without them the rows are made anew.
    assert asked == [9, 7]


def test_rows_set_aside_move_no_centroid_and_are_placed_by_the_nearest() -> None:
    aside = np.array([False, False, False, False, True])
    found = placed(ROWS, aside, lambda rows: (rows[:, 1] == 0.0).astype(np.int64) + (rows[:, 0] < 0.0))
    assert found.tolist() == [0, 0, 1, 2, 1]


def test_of_drawn_groups_no_model_moves_over_twice_as_far_as_the_median_one() -> None:
    layout = SimpleNamespace(trained=np.array([True, True, False]))
    models = SimpleNamespace(bank=np.ones((4, 3)), layout=layout)
    moves = np.array([[3.0, 4.0, 9.0], [0.0, 1.0, 9.0], [0.0, 0.0, 9.0], [1.0, 0.0, 9.0]])
    context: Any = SimpleNamespace(averaging=SimpleNamespace(robust=RobustRule("median", 0.2)), models=models)
    # The lengths are 5, 1 and 1, and one has not moved; buffers are left alone.
    expected = [[1.2, 1.6, 9.0], *moves.tolist()[1:]]
    np.testing.assert_allclose(bounded_moves(context, models.bank + moves) - models.bank, expected)
    context.averaging.robust = None
    np.testing.assert_allclose(bounded_moves(context, models.bank + moves) - models.bank, moves)


def test_a_far_client_is_judged_when_its_probation_ends_though_it_is_not_far_any_more() -> None:
    quarantine, said = Quarantine(), []
    for server_round, is_far in enumerate((True, False, False, False, True), 1):
        quarantine.begin_round()
        said.append((quarantine.is_judged("a", is_far, server_round), "a" in quarantine.probation))
    assert said == [(False, True), (False, True), (True, False), (False, False), (True, False)]


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
