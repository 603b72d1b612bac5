"""FedPAC: weights of the heads, statistics of features, and what is shared and kept."""

import numpy as np
import pytest
from scipy.optimize import minimize

from florets.zoo.fedpac import TRAIN_SPLIT, head_weights, shares_and_spread
from tests.method_runs import play

PAC = "strategy=fedpac"


def test_two_clients_weigh_as_computed_by_hand() -> None:
    # a^2 v_0 + (1 - a)^2 (v_1 + d^2) with v = (1, 2) and d^2 = 4: a = 6 / 7; of the other a^2 2 + (1 - a)^2 (1 + 4).
    found = head_weights(np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(found, [[6 / 7, 1 / 7], [2 / 7, 5 / 7]], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_solution_is_a_general_solvers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    statistics, spreads = draw.normal(size=(5, 8)) * 0.3, draw.uniform(0.05, 1.0, 5)
    for row, weights in enumerate(head_weights(statistics, spreads)):
        away = statistics[row] - statistics

        def cost(a: np.ndarray, away: np.ndarray = away) -> float:
            return float(a**2 @ spreads + np.sum((a @ away) ** 2))

        found = minimize(
            cost,
            np.full(5, 0.2),
            jac=lambda a, away=away: 2 * (a * spreads + away @ (a @ away)),
            method="SLSQP",
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones(5)},
            options={"ftol": 1e-16, "maxiter": 500},
        )
        assert cost(weights) == pytest.approx(found.fun, abs=1e-9)
        assert (weights.min() >= 0, weights.sum()) == (True, pytest.approx(1.0))


def test_the_statistics_of_features_are_as_computed_by_hand() -> None:
    features, labels = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 6.0]]), np.array([2, 2, 0, 0])
    rows, spread = shares_and_spread(features, labels, 4)
    assert rows.tolist() == [[0.0, 2.0], [1.0, 0.0]]
    # (mean |f|^2 - (4 + 1)) / n = ((1 + 9 + 4 + 36) / 4 - 5) / 4.
    assert spread == pytest.approx((12.5 - 5) / 4)


def test_round_1_has_no_prototypes_to_pull_towards_not_even_the_clients_own() -> None:
    once, twice = ("num_rounds=1", "train.local_epochs=3"), ("num_rounds=2", "train.local_epochs=3")
    without = "strategy.prototype_lambda=0"
    assert play(PAC, *once).final == play(PAC, *once, without).final
    assert play(PAC, *twice).final != play(PAC, *twice, without).final


@pytest.mark.slow
def test_heads_are_combined_within_a_group_alone_and_the_body_is_shared() -> None:
    given = ("num_rounds=6", "train.local_epochs=5", "strategy.fraction_train=0.7", "eval_every=1")
    found = play(PAC, *given)
    bank = found.strategy.final_models(found.models).bank
    numbers = [found.strategy.assignment[str(client)] for client in range(6)]
    head = found.models.layout.mask(["3"])
    assert (bank[:, ~head] == bank[0, ~head]).all()
    heads = bank[numbers][:, head]
    within = max(np.linalg.norm(heads[a] - heads[b]) for a in range(3) for b in range(3))
    across = min(np.linalg.norm(heads[a] - heads[b]) for a in range(3) for b in range(3, 6))
    assert within < across / 2
    fedavg = play("strategy=fedavg", *given)
    own, plain = found.reports[-1].evaluations, fedavg.reports[-1].evaluations
    assert np.mean([result.accuracy for result in own.values()]) > np.mean([r.accuracy for r in plain.values()])


@pytest.mark.slow
def test_a_clients_head_is_its_own_where_no_other_is_like_it_and_a_lost_reply_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("florets.zoo.fedpac.LEAST_WEIGHT", 1.0)
    given = (PAC, "num_rounds=2")
    found = play(*given, lost={(TRAIN_SPLIT, 2, 3)})
    before = play(PAC, "num_rounds=1").strategy.state.heads.data
    after = found.strategy.state.heads.data
    assert [key for key in after if np.array_equal(after[key], before[key])] == ["3"]
    assert set(found.strategy.state.classes) == {0, 1, 2, 3}
