"""`florets theory`: the papers' quantities by hand, and their theorems on runs."""

import math
from pathlib import Path

import numpy as np
import pytest

import florets
from florets.strategies.cfl_gp.theory import gradient_gap
from florets.strategies.clove.theory import proximity
from florets.strategies.two_phase.theory import chi_squared, clustering_error, stability
from florets.task.data.dataset import Dataset

ROOT2 = math.sqrt(2)


def two_rules(data_dir: Path | None, seed: int, num_clusters: int, noise: float = 0.5) -> Dataset:
    """Two rules, (1, 0) and (-1, 0), without the noise that is named; 4 samples of each client: X^T X = 4 I."""
    true, corners = np.array([[1.0, 0.0], [-1.0, 0.0]]), ROOT2 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    x = np.tile(corners, (2 * 5, 1)).astype(np.float32)
    group = np.repeat([0, 1], len(x) // 2)
    y = (x * true[group]).sum(axis=1).astype(np.float32)
    test = np.arange(len(x)) % 20 >= 16
    parts = [part[rows] for rows in (~test, test) for part in (x, y)]
    return Dataset(*parts, 1, group[~test], group[test], true_models=true.astype(np.float32))


def in_fours(data: Dataset, num_clients: int, num_clusters: int, rng: np.random.Generator) -> list[florets.Shard]:
    """Four samples for each of 8 clients, in order."""
    assert data.group_train is not None
    rows = np.arange(len(data.y_train)).reshape(num_clients, -1)
    return [
        florets.Shard(int(data.group_train[own[0]]), own, np.arange(4) + 4 * (n // 4)) for n, own in enumerate(rows)
    ]


TASK = {"data": two_rules, "data_options": {}, "partition": in_fours, "partition_options": {}, "num_clusters": 2}


def table(experiment: str, **keys):
    found = florets.theory(experiment, **keys)
    assert list(found.columns) == ["quantity", "rule", "theory", "here", "holds", "source"]
    return found.set_index("quantity")


def test_quantities_by_hand() -> None:
    # Shares 1/8 (3 clients) and 5/8, of 1/4 each: 4 (3/64 + 9/64).
    assert chi_squared(np.array([10, 10, 10, 50])) == pytest.approx(0.75)
    assert chi_squared(np.full(7, 3)) == 0
    assert [stability(0.5, 1), stability(0.5, 2), stability(0.5, 9, proximal=True)] == pytest.approx([1, 4 / 3, 1.5])
    assert math.isinf(stability(1.0, 5))
    ones = np.array([1, 1])
    assert clustering_error(ones, 2, 2, 1.0, 2.0) == pytest.approx((8 / math.e, math.sqrt(2 * math.log(2))))
    assert clustering_error(ones, 2, 2, 1.0, 0.5)[0] == pytest.approx(8 * math.exp(-1 / 16))
    # Centred: (1, 0), (-1, 0) and (0, 0), of norm sqrt(2); the first is 2 farther from the other centre.
    vectors, centres = np.array([[1.0, 0.0], [-1.0, 0.0], [4.0, 0.0]]), np.array([[0.0, 0.0], [4.0, 0.0]])
    assert proximity(vectors, centres, np.array([0, 0, 1])) == pytest.approx((ROOT2, 2 / ((2 / 2 + 2 / 1) * ROOT2)))
    assert gradient_gap(np.array([[[0.0, 0.0], [3.0, 4.0]], [[1.0, 0.0], [1.0, 2.0]]])) == 2


def test_mixed_regression_by_hand() -> None:
    start = {"model_options": {"start": "normal", "scale": 1e-6}, "loss": "half_squared_error"}
    found = table(
        "mixed_regression/a", task={**TASK, **start}, num_clients=8, k=2,
        train={"learning_rate": 0.5, "local_epochs": 2},
    )  # fmt: skip
    # N = 32, d = k = 2, M = 8, Delta = 2, R = alpha = beta = 1, sigma = 0.5; X^T X / n = I, so gamma is the rate.
    unit = (1 + 0.5**4) * math.log(32) ** 3 / (2**4 * 0.05**4)
    nu = 8 * math.exp(-4) + math.sqrt(2 * 2 * math.log(2) / 8)
    lost = nu * (1 - math.log(nu))
    assert found.theory.dropna().to_dict() == pytest.approx({
        "anchors m_H": math.log(2 / 0.05) / 0.5, "epsilon": 1 / 8,
        "m, clients asked in a round": unit * 2 / 0.5**2, "n_H, pairs of an anchor": unit * 2,
        "T, rounds of phase 1": 16 * math.log(20),
        "distance from true models after phase 1": 0.1, "eta, learning rate": 1 / 2,
        "gamma": 1, "samples of the smallest cluster": 2,
        "nu log(e/nu)": 0.5 / (4 / 3), "T', rounds of phase 2": 4 / 3 / 0.5 * math.log(2 / nu),
        "error over that of the round before": 1 - 2 * 0.5 * 0.5 / (4 / 3),
        "distance from true models at the end": 0.5 * (4 / 3) / 0.5 * lost, "models K": 2,
    })  # fmt: skip
    here = found.here
    assert (here["kappa, stability of local steps"], here["rho"], here["n_H, pairs of an anchor"]) == (
        pytest.approx(4 / 3), 0.5, 2,
    )  # fmt: skip
    assert here["nu log(e/nu)"] == pytest.approx(lost)
    assert not found.holds["nu log(e/nu)"]
    # The loss without its half has twice the gradient: gamma = 1, and no kappa.
    task = {**TASK, **start, "loss": "squared_error"}
    twice = table("mixed_regression/a", task=task, num_clients=8, k=2, train={"learning_rate": 0.5})
    assert twice.here["gamma"] == pytest.approx(1)
    assert math.isinf(twice.here["kappa, stability of local steps"])


def test_the_gradient_gap_by_hand() -> None:
    # Of squared errors the gradients are 2 (theta - theta_k), whatever theta is; all samples have no noise.
    found = table("cfl_gp/linear", task={**TASK, "model_options": {}}, num_clients=8, k=2, gradient_batch="full")
    assert found.here["Delta_g, least gap of clusters' gradients"] == pytest.approx(4)
    assert found.here["v"] == pytest.approx(0, abs=1e-6)
    assert found.theory["rounds"] == pytest.approx(2 * 2 + 1)
    assert found.holds["models K"]
    keys = {"task": {**TASK, "model_options": {}}, "num_clients": 8, "k_max": 4}
    assert [table("cfl_gp/linear", **keys, k=k).holds["models K"] for k in (3, "auto")] == [False, None]


def test_cloves_theorem_holds_in_the_first_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"num_clients": 50, "num_rounds": 1, "quiet": True, "loss_matrix": False, "pictures": False}
    keys |= {
        "task": {"data_options": {"samples_per_cluster": 5000}, "partition_options": {"samples_per_client": 500}}
    }
    assert table("clove/theorem", **keys).here.isna().sum() == 3
    runs = [florets.run("clove/theorem", seed=seed, **keys) for seed in range(2)]
    assert [run.ari for run in runs] == [1.0, 1.0]
    assert all(run.rounds.model_error.iloc[-1] <= 1 / 4 for run in runs)
    found = table("clove/theorem", **keys)
    assert found.here["first round with ARI 1"] == found.theory["first round with ARI 1"] == 1
    assert found.here["initial models and probes, N"] == 20
    assert found.here["models' distance at the end"] == runs[0].rounds.model_error.iloc[-1]
    # With so few clients the sufficient condition of Theorem A.9 does not hold, everything else does.
    assert list(found.index[found.holds == False]) == ["proximity: largest c'"]  # noqa: E712 - None is no False
