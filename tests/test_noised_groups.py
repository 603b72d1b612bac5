"""Groups from noised sums: the level of the test, what one client changes, and centres by moments."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.strategies.core.accountant import level_of
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.noised_groups import PARTS, NoisedGroups, Release, centres_of, differ, noised_groups
from florets.strategies.layers.budget import BUDGET_FILE, read_budget
from florets.task.wire import noise


def release(deviation: float, rng: np.random.Generator, log: list[tuple[Any, float, int]] | None = None) -> Release:
    """Noise of this deviation for one part; what is released without it goes to the log."""
    plain, log = Release.of(deviation, rng), [] if log is None else log
    return Release(lambda *released: log.append(released) or plain.add(*released), deviation)


def grouped(sizes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of clients in groups of orthogonal directions, with a common part, and noise in each fold."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centres = np.eye(8)[labels] + 0.5
    return centres[:, None] + rng.normal(0, 0.3, (len(labels), 2, 8)), labels


def test_identical_clients_are_divided_no_more_often_than_the_level_with_or_without_noise() -> None:
    # With 39 permutations a p value of at most 0.05 has a probability of 0.05: 20 of 400, and a deviation of 4.4.
    rng = np.random.default_rng(5)
    for deviation in (0.0, 2.0):
        rejected = 0
        for _ in range(400):
            rows = 0.4 + rng.normal(0, 0.5, (20, 2, 4))
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            rejected += differ(rows, 0.05, rng, release(deviation, rng))[0]
        assert 8 <= rejected <= 20 + 2 * 4.4


def test_one_client_changes_the_test_by_three_and_each_sum_by_its_norm() -> None:
    # Its own product is 1, and with everybody else's rows it has -1 twice.
    rows = np.zeros((6, 2, 2))
    rows[:, :, 0] = -1.0
    rows[0, :, 0] = 1.0
    without = rows.copy()
    without[0] = 0.0
    found = []
    for given in (rows, without):
        log: list[Any] = []
        differ(given, 0.05, np.random.default_rng(1), release(0.0, np.random.default_rng(2), log))
        total, norm, _ = log[0]
        found.append(total[0] - total[1:])
    assert np.abs(found[0] - found[1]).max() == norm == 3.0
    data, _ = grouped([7, 7, 7], 3)
    logs: list[list[Any]] = [[], []]
    for log, kept in zip(logs, (data, np.concatenate([np.zeros((1, 2, 8)), data[1:]])), strict=True):
        noised_groups(kept, 3, 0.05, np.random.default_rng(1), release(0.0, np.random.default_rng(2), log))
    assert [parts for _, _, parts in logs[0]] == [2, 5, 3]
    # The mean alone: later sums are of vectors relative to the mean that was released.
    assert np.linalg.norm(logs[0][0][0] - logs[1][0][0]) <= logs[0][0][1] == 1.0


def test_moments_give_the_centres_of_unequal_groups() -> None:
    # A fifth of the points at 4 and the others at -1: mean 0, second moment 4, third 12.
    centres, weights = centres_of(np.array([4.0]), np.full((1, 1, 1), 12.0), np.random.default_rng(0))
    order = np.argsort(weights)
    np.testing.assert_allclose(centres[order, 0], [4.0, -1.0])
    np.testing.assert_allclose(weights[order], [0.2, 0.8])
    # An equilateral triangle of radius 2: second moments 2, third E[x^3] = 2 and E[x y^2] = -2.
    third = np.zeros((2, 2, 2))
    third[0, 0, 0] = 2.0
    third[0, 1, 1] = third[1, 0, 1] = third[1, 1, 0] = -2.0
    centres, weights = centres_of(np.array([2.0, 2.0]), third, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(centres[:, 0]), [-1.0, -1.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(weights, [1 / 3] * 3, atol=1e-6)


def test_many_clients_are_grouped_and_noise_that_hides_groups_is_answered_by_none() -> None:
    rows, truth = grouped([90, 60, 50], 1)
    rng = np.random.default_rng(2)

    def found(deviation: float, k: int | None = None) -> NoisedGroups:
        return noised_groups(rows, k, 0.005, rng, release(deviation, rng))

    plain = found(0.0)
    assert plain.k == 3
    assert adjusted_rand_index(truth.tolist(), plain.labels.tolist()) > 0.95
    assert plain.error < 0.01
    assert plain.p_value is None
    assert plain.parts == PARTS
    noised = found(3.0)
    assert noised.k == 3
    assert adjusted_rand_index(truth.tolist(), noised.labels.tolist()) > 0.9
    hidden = found(300.0)
    assert (hidden.k, hidden.parts) == (1, 4)
    assert found(20.0, k=3).error > found(3.0, k=3).error
    own = noised_groups(rows + rng.normal(0, 0.2, rows.shape), None, 0.005, rng)
    assert own.k == 3
    assert own.p_value == pytest.approx(1 / 400)


def test_rows_that_a_client_noises_say_nothing_of_how_many_it_has() -> None:
    one = noise.noised_rows(np.array([[0.6, 0.8]]), 2, 0.0)
    np.testing.assert_array_equal(one, [[0.0, 0.0], [0.6, 0.8]])
    many = noise.noised_rows(np.zeros((2, 4000)), 2, 3.0)
    assert many.std() == pytest.approx(3 * np.sqrt(2), rel=0.05)
    assert np.isfinite(noise.noised_rows(np.ones((2, 9)), 2, 1e9).astype(np.float16)).all()


@pytest.mark.parametrize("kind", ["central", "local"])
def test_a_run_says_what_its_search_for_groups_spent_and_stays_within_epsilon(kind: str, tmp_path: Path) -> None:
    given = [
        *("experiment=quickstart", "strategy=discovery", "k=2", "num_clients=12", "task.num_clusters=2"),
        *("task.model_options={hidden: [8]}", "num_rounds=2", "quiet=true", "pictures=false", "loss_matrix=false"),
        *(f"privacy.kind={kind}", "privacy.epsilon=50", f"results_dir={tmp_path}"),
    ]
    folder = Path(engine.run(compose(given), given).folder)
    first, last = (json.loads(line)["details"] for line in (folder / "rounds.jsonl").read_text().splitlines())
    budget = read_budget(folder / BUDGET_FILE)
    # A fifth of the budget of squared levels.
    spent = 0.2 * level_of(50.0, budget.delta) ** 2
    assert level_of(first["discovery"]["epsilon"], budget.delta) ** 2 == pytest.approx(spent, rel=1e-6)
    assert 0 <= first["discovery"]["error"] <= 0.5
    assert max(budget.spent.values()) == pytest.approx(5 * spent)
    assert last["privacy"]["epsilon"] <= 50.0


@pytest.mark.parametrize("key", ["subgroups=true"])
def test_what_noised_discovery_cannot_follow_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy.{key.partition('=')[0]}"):
        compose(["strategy=discovery", "k=auto", f"strategy.{key}", "privacy.kind=central", "privacy.epsilon=4"])
