"""Averages that a minority of hostile clients cannot move far."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.serverapp.strategy.multikrum import select_multikrum
from scipy.optimize import minimize
from scipy.stats import trim_mean

from florets.strategies.base.models import GradientAveraging, ModelAveraging, Models, Updates
from florets.strategies.core import FloatArray
from florets.strategies.core.robust import SKETCH, Robust, RobustName, RobustRule, bounded, distances_of, gram_of
from florets.strategies.core.rows import Rows
from florets.task.wire import Layout, bank
from florets.task.wire.flower import filled
from florets.task.wire.replies import Update

ALL: tuple[RobustName, ...] = ("clip", "trimmed_mean", "median", "geometric_median", "multi_krum")


def averages(name: RobustName, rows: Rows, start: FloatArray, hostile: float = 0.2) -> tuple[FloatArray, FloatArray]:
    """Return the average of all rows and the part of each that counted."""
    robust = Robust(RobustRule(name, hostile), rows, np.zeros(len(rows), np.int64), start[np.newaxis])
    return robust.mean(np.arange(len(rows)), np.ones(len(rows)), start), robust.kept


def average(name: RobustName, rows: FloatArray) -> FloatArray:
    return averages(name, rows, np.zeros(rows.shape[1]))[0]


def test_clip_shortens_changes_to_twice_the_median_length() -> None:
    value, kept = averages("clip", np.array([[3.0, 4.0], [0.0, 1.0], [60.0, 80.0]]), np.zeros(2))
    np.testing.assert_allclose(kept, [1.0, 1.0, 0.1])
    np.testing.assert_allclose(value, [9.0 / 3, 13.0 / 3])


def test_weights_are_at_most_five_times_the_median_and_the_hostile_ones_less_than_half() -> None:
    np.testing.assert_array_equal(bounded(np.array([10.0, 20.0, 1e9]), 0), [10.0, 20.0, 100.0])
    np.testing.assert_allclose(bounded(np.array([30.0, 60.0, 60.0, 90.0, 1e9]), 1)[-1], 240 * 0.45 / 0.55)
    np.testing.assert_array_equal(bounded(np.array([20.0, 100.0, 100.0, 200.0, 200.0]), 1), [20, 100, 100, 200, 200])
    # The bound holds where honest weights are bounded as well; of 19, nine have more than that even if all are equal.
    for found in (
        bounded(np.array([20.0, 50.0, 100.0, 150.0, 200.0, 200.0]), 2),
        bounded(np.array([1.0, 9, 9, 9, 9]), 2),
    ):
        assert found[-2:].sum() / found.sum() == pytest.approx(0.45)
    np.testing.assert_array_equal(bounded(np.arange(1.0, 20.0), 9), np.ones(19))


def test_two_clients_are_clipped_to_the_participants_median_and_one_is_left_alone() -> None:
    rows = np.array([[8.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    robust = Robust(RobustRule("median"), rows, np.array([0, 0, 1]), np.zeros((2, 2)))
    np.testing.assert_allclose(robust.mean(np.arange(2), np.ones(2), np.zeros(2)), [1.0, 0.5])
    np.testing.assert_allclose(average("multi_krum", rows[:1]), [8.0, 0.0])


def test_trimmed_mean_and_median_are_scipys_and_numpys() -> None:
    rows = np.random.default_rng(0).normal(size=(10, 2500))
    np.testing.assert_allclose(average("trimmed_mean", rows), trim_mean(rows, 0.2, axis=0))
    np.testing.assert_allclose(average("median", rows), np.median(rows, axis=0))


def test_multi_krum_selects_the_updates_that_flower_selects() -> None:
    rows = np.random.default_rng(1).normal(size=(10, 7))
    rows[[2, 6]] += 4.0
    replies = [RecordDict({"arrays": ArrayRecord([row])}) for row in rows]
    chosen = [reply.array_records["arrays"].to_numpy_ndarrays()[0] for reply in select_multikrum(replies, 2, 8)]
    np.testing.assert_allclose(average("multi_krum", rows), np.mean(chosen, axis=0))


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    rows = np.random.default_rng(2).normal(size=(9, 3))
    best = minimize(lambda point: np.linalg.norm(rows - point, axis=1).sum(), rows.mean(axis=0), tol=1e-10)
    np.testing.assert_allclose(average("geometric_median", rows), best.x, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_minority_moves_no_rule_further_than_the_benign_members_lie_apart(name: RobustName) -> None:
    rows = 1.0 + 0.1 * np.random.default_rng(5).normal(size=(5, 50))
    rows[0] = -1e6
    benign = np.linalg.norm(rows[1:], axis=1).mean()
    assert np.linalg.norm(average(name, rows) - 1.0) < (1.05 if name == "clip" else 0.15) * benign


def test_distances_of_long_updates_are_nearly_those_of_their_sketches() -> None:
    rows = np.random.default_rng(3).normal(size=(6, 10 * SKETCH + 5))
    start = rows.mean(axis=0)
    exact = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
    found = distances_of(gram_of(rows, np.arange(6), start, 2).products)
    off = ~np.eye(6, dtype=bool)
    assert np.abs(found[off] / exact[off] - 1).max() < 0.1


def test_shared_layers_statistics_and_counters_are_protected_apart() -> None:
    one = filled(ArrayRecord(), {name: Array(np.zeros(1, dtype)) for name, dtype in zip("absc", "fffq", strict=True)})
    models = Models(bank.pack(np.zeros((2, 4)), Models(one).layout), shared_layers=["a"], untrained=["s", "c"])
    vectors = np.array([[1.0, 1.0, 2.0, 5.0]] * 8)
    vectors[[0, 4]] = [-1e5, 1e5, 1e9, 1e6]
    groups = np.array([0] * 4 + [1] * 4)
    heard: dict[str, float] = {}
    keys = [str(client) for client in range(8)]
    averaging = ModelAveraging(robust=RobustRule("median"), note=lambda key, part: heard.update({key: part}))
    found = averaging.next_bank(models, vectors, groups, np.ones(8), keys)
    np.testing.assert_allclose(found, [[1.0, 1.0, 2.0, 5.0]] * 2)
    assert sorted(heard) == keys
    assert heard["0"] == 0.0


def test_gradients_are_averaged_robustly() -> None:
    models = Models(filled(ArrayRecord(), {"a": Array(np.zeros(2))}))
    gradients = np.array([[1.0, 2.0], [1.0, 2.0], [1e9, -1e9]])
    averaging = GradientAveraging(learning_rate=0.5, robust=RobustRule("median"))
    found = averaging.next_bank(models, gradients, np.zeros(3, dtype=np.int64), np.ones(3))
    np.testing.assert_allclose(found, [[-0.5, -1.0]])


def test_updates_as_they_were_sent_give_what_their_vectors_give() -> None:
    rng = np.random.default_rng(4)
    start = filled(ArrayRecord(), {"a": Array(np.ones((70, 60), np.float32)), "b": Array(np.ones(9, np.float32))})
    layout = Layout.of(start)
    rows = 1.0 + 0.1 * rng.normal(size=(100, layout.size)).astype(np.float32)
    sent = [("", Update(0, layout.checked(layout.arrays(row.astype(np.float64))), 1, 0.0)) for row in rows]
    members, theta = np.arange(100)[::-1], layout.flatten(start)
    for name in ("clip", "trimmed_mean", "median"):
        value, kept = averages(name, rows.astype(np.float64), theta)
        found, counted = averages(name, Updates(sent), theta)
        np.testing.assert_allclose(found, value, rtol=1e-5)
        np.testing.assert_allclose(counted, kept, atol=0.01)
    exact = distances_of((rows[members] - theta) @ (rows[members] - theta).T)
    off = ~np.eye(100, dtype=bool)
    assert np.abs(distances_of(gram_of(Updates(sent), members, theta, 2).products)[off] / exact[off] - 1).max() < 0.1
