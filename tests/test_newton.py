"""Newton training of linear models: the client's step, the pooled step, and what travels."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, Message
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import florets
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.strategies.base.outliers import OUTLIER
from florets.strategies.core.aggregate import pooled_step
from florets.task.training.linear import LinearNames
from florets.task.training.newton import newton_update, parameters_of, second_order
from florets.task.training.settings import Training
from florets.task.wire import kinds
from tests.method_runs import LosingGrid, play

NAMES = LinearNames("weight", "bias")
NEWTON = Training(solver="newton", ridge=1.0)


def classes(rng: np.random.Generator, n: int, width: int = 3, size: int = 4):  # type: ignore[no-untyped-def]
    x = rng.normal(size=(n, size)).astype(np.float32)
    logits = x @ rng.normal(size=(size, width)) + rng.normal(size=width)
    return x, (logits + rng.gumbel(size=(n, width))).argmax(axis=1)


@pytest.mark.parametrize("loss", ["cross_entropy", "half_squared_error"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_second_order_terms_are_those_of_autograd(loss: str, with_bias: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = classes(rng, 30)
    width = 3 if loss == "cross_entropy" else 1
    weights = rng.uniform(0.5, 1.5, size=30)
    at = rng.normal(size=width * (4 + with_bias))

    def total(parameters: torch.Tensor) -> torch.Tensor:
        outputs = torch.tensor(x, dtype=torch.float64) @ parameters[: width * 4].view(width, 4).T
        outputs = outputs + parameters[width * 4 :] if with_bias else outputs
        if loss == "cross_entropy":
            each = torch.nn.functional.cross_entropy(outputs, torch.tensor(y), reduction="none")
        else:
            each = (outputs[:, 0] - torch.tensor(y)).square() / 2
        return (torch.tensor(weights) * each).sum()

    point = torch.tensor(at, requires_grad=True)
    (slope,) = torch.autograd.grad(total(point), point)
    curvature = torch.autograd.functional.hessian(total, point)  # type: ignore[no-untyped-call]
    found = second_order(at, x, y, loss, with_bias, weights)
    assert found.value == pytest.approx(total(point).item(), rel=1e-12)
    np.testing.assert_allclose(found.gradient, slope.numpy(), atol=1e-10)
    np.testing.assert_allclose(found.hessian, curvature.numpy(), atol=1e-10)


def start_of(width: int, size: int) -> dict[str, np.ndarray]:
    return {"weight": np.zeros((width, size), np.float32), "bias": np.zeros(width, np.float32)}


def test_one_step_is_ridge_regression_and_some_are_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    x, y = classes(rng, 200)
    values = (x @ rng.normal(size=4) + 3 + rng.normal(size=200)).astype(np.float32)
    arrays, mean, _ = newton_update(NAMES, start_of(1, 4), x, values, "squared_error", NEWTON)
    # The bias has a hundredth of the ridge, scikit-learn's none: 200 records of mean 3 move by 0.01 / 200 of that.
    reference = Ridge(1.0).fit(x, values)
    np.testing.assert_allclose(arrays["weight"][0], reference.coef_, atol=1e-3)
    assert arrays["bias"][0] == pytest.approx(reference.intercept_, abs=1e-3)
    assert mean == pytest.approx(float(np.square(values).mean()), rel=1e-6)

    training = replace(NEWTON, local_epochs=8)
    arrays, mean, _ = newton_update(NAMES, start_of(3, 4), x, y, "cross_entropy", training)
    fitted = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(arrays["weight"], fitted.coef_, atol=2e-3)
    assert mean == pytest.approx(np.log(3), rel=1e-6)


@pytest.mark.parametrize("records", ["separable", "one class"])
def test_a_step_never_raises_the_objective(records: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(20, 5)).astype(np.float32)
    y = np.zeros(20, np.int64) if records == "one class" else (x[:, 0] > 0).astype(np.int64)
    state = {"weight": rng.normal(size=(2, 5)).astype(np.float32), "bias": np.zeros(2, np.float32)}

    def objective(of: dict[str, np.ndarray]) -> float:
        at = parameters_of(NAMES, of)
        return second_order(at, x, y, "cross_entropy").value + NEWTON.penalty(np.arange(12) >= 10) @ np.square(at) / 2

    values = [objective(state)]
    for _ in range(12):
        state, _, _ = newton_update(NAMES, state, x, y, "cross_entropy", NEWTON)
        values.append(objective(state))
    assert all(after <= before * (1 + 1e-5) for before, after in pairwise(values))
    assert np.isfinite(values[-1])


def test_pooled_steps_end_at_the_pooled_fit_whatever_the_clients_sizes_and_columns() -> None:
    """Clients of few records, with columns that are constant or of one class there."""
    rng = np.random.default_rng(3)
    x, y = classes(rng, 120, width=2)
    x[:5, 0], x[5:12, 1], y[5:12] = 0.3, 0.0, 1
    ends = [0, 5, 12, 60, 120]
    parts = [slice(begin, end) for begin, end in pairwise(ends)]
    examples = np.diff(ends).astype(np.float64)
    at, ridge = np.zeros(10), NEWTON.penalty(np.arange(10) >= 8)
    for _ in range(12):
        terms = [second_order(at, x[part], y[part], "cross_entropy") for part in parts]
        gradients, hessians = [one.gradient for one in terms], [one.hessian for one in terms]
        at = at + pooled_step(at, gradients, hessians, examples, examples, ridge, is_quadratic=False)
    # Two outputs with penalties of their own: each is half of the difference, with half of its penalty.
    fitted = LogisticRegression(C=2.0, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(at[4:8] - at[:4], fitted.coef_[0], atol=2e-3)


def test_keys_of_gradient_steps_choose_them() -> None:
    table = ["experiment=own_data", "task.table.target=y"]
    assert compose(table).train.solver == "newton"
    assert compose([*table, "train.learning_rate=0.1"]).train.solver == "sgd"
    assert compose([*table, "train.solver=sgd"]).train.solver == "sgd"
    with pytest.raises(
        ConfigError, match=r"momentum=0\.5: is of gradient steps, and train\.solver=newton takes none"
    ):
        compose([*table, "train.solver=newton", "train.momentum=0.5"])
    with pytest.raises(
        ConfigError, match=r"ridge=3: is of train\.solver=newton, and train\.momentum=0\.5 of gradient"
    ):
        compose([*table, "train.ridge=3", "train.momentum=0.5"])
    with pytest.raises(ConfigError, match=r"ridge=3: is of train\.solver=newton, add that, or leave it out"):
        compose(["train.ridge=3"])


def test_fedavg_of_sites_is_the_pooled_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    sites = {}
    for site, size in enumerate((8, 40, 200)):
        x = rng.normal(loc=site, scale=1 + site, size=(size, 3))
        y = x @ [1.0, -2.0, 0.5] + 5 * site + rng.normal(size=size)
        sites[f"s{site}"] = {"train": (x, y), "test": (x, y)}
    keys = {
        "task.model": "linear",
        "task.model_options.bias": True,
        "num_rounds": 3,
        "train.ridge": 1e-6,
        "pictures": False,
    }
    run = florets.run(clients=sites, regression=True, strategy="fedavg", results_dir=tmp_path, **keys)
    x, y = (np.concatenate([site["train"][part] for site in sites.values()]) for part in (0, 1))
    fitted = LinearRegression().fit(x, y).predict(x)
    found = run.predict(x, model=0).frame().iloc[:, -1].to_numpy()
    np.testing.assert_allclose(found, fitted, atol=1e-3 * y.std())


class LyingGrid(LosingGrid):
    """A grid on which client 3 says that its gradients, or its Hessians, are a million times as large."""

    what = kinds.GRADIENT

    def pull_messages(self, message_ids: Any) -> list[Message]:
        replies = super().pull_messages(message_ids)
        for sent in replies:
            node = int(self._contexts[sent.metadata.src_node_id].node_config["partition-id"])
            if node == 3 and (record := sent.content.array_records.get(kinds.SECOND_ORDER)):
                record[self.what] = Array(1e6 * record[self.what].numpy())
        return replies


@pytest.mark.parametrize("what", [kinds.GRADIENT, kinds.HESSIAN])
def test_a_client_that_lies_in_what_is_added_up_is_rejected(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.method_runs.LosingGrid", LyingGrid)
    monkeypatch.setattr(LyingGrid, "what", what)
    found = play(
        *("experiment=cfl_gp/linear", "strategy=fedavg", "num_clients=6", "num_rounds=1", "averaging=models"),
        *("task.data_options.train_per_line=60", "task.data_options.test_per_line=20", "eval_every=1"),
        *("task.model=linear", "train.solver=newton"),
    )
    assert {key: one.rejected for key, one in found.reports[-1].clients.items() if one.rejected} == {"3": OUTLIER}
