"""The methods in `examples/baselines`: exact properties of each, on two groups of three clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import florets
from tests.method_runs import Played, play

EXAMPLES = Path(__file__).parents[1] / "examples" / "baselines"
NORM = "task.model=tests.test_example_baselines:normalised"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def sgd(strategy: str, *more: str) -> Played:
    """Run a strategy with plain gradient steps."""
    usual = {"train": "sgd", "train.momentum": "0", "train.batch_size": "10", "train.learning_rate": "0.05"}
    given = dict(text.split("=", 1) for text in more)
    return play(f"strategy={strategy}", *(f"{key}={value}" for key, value in {**usual, **given}.items()))


def normalised(input_shape: tuple[int, ...], num_outputs: int, hidden: tuple[int, ...]) -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_outputs))


def bank(found: Played) -> Any:
    return found.strategy.context.models.bank


def kept(found: Played) -> Any:
    return found.strategy.state.kept


def fedavg(*more: str) -> Played:
    return sgd("fedavg", *more)


def test_scaffold_is_fedavg_while_all_variates_are_zero_and_not_after() -> None:
    first, second = (sgd("scaffold:Scaffold", f"num_rounds={n}") for n in (1, 2))
    assert first.final == fedavg("num_rounds=1").final
    assert not np.allclose(bank(second), bank(fedavg()), atol=1e-5)


def test_scaffolds_first_variate_is_the_mean_gradient_of_the_clients_steps() -> None:
    """One full step of plain gradient descent changes the model by the rate times the gradient."""
    found = sgd("scaffold:Scaffold", "train.batch_size=10000", "num_rounds=1")
    by_gradient = sgd("fedavg", "averaging=gradients", "num_rounds=1", "train.learning_rate=1.0")
    trained = found.strategy.context.models.layout.trained
    start = bank(by_gradient)[0] + np.average(list(kept(found).own.values()), axis=0, weights=_examples(found))
    assert trained.all()
    np.testing.assert_allclose(bank(found)[0] - start, -0.05 * (start - bank(by_gradient)[0]), atol=1e-6)


def _examples(found: Played) -> list[int]:
    clients = found.strategy.federation.clients.values()
    counts = {client.key: client.num_examples for client in clients}
    return [counts[key] for key in kept(found).own]


def test_fednova_is_fedavg_where_all_take_as_many_steps() -> None:
    equal = ("train.local_steps=3", "train.momentum=0.5")
    found = sgd("fednova:FedNova", *equal)
    np.testing.assert_allclose(bank(found), bank(fedavg(*equal)), atol=1e-6)


def test_fednova_averages_changes_by_step() -> None:
    """By hand: tau_eff = (1 + 2) / 2, the mean change of a step is (1 / 1 + 4 / 2) / 2."""
    from fednova import NormalizedAveraging

    updates = [
        florets.Update(0, np.array([10 + change]), 50, 0.0, numbers={"tau": tau})
        for change, tau in [(1.0, 1), (4.0, 2)]
    ]
    np.testing.assert_allclose(NormalizedAveraging(None).average(np.array([10.0]), updates), [10 + 1.5 * 1.5])


def test_fedbn_keeps_each_clients_normalisation_and_shares_the_rest() -> None:
    found = sgd("fedbn:FedBN", NORM)
    own = found.strategy.own_models(found.strategy.context.models)
    norm = found.strategy.context.models.layout.mask(["2"])
    rows = np.stack([own[key] for key in sorted(own)])
    assert len(rows) == 6
    assert (rows[:, ~norm] == bank(found)[0, ~norm]).all()
    # Running means differ between any two clients.
    assert all(not np.array_equal(a[norm], b[norm]) for i, a in enumerate(rows) for b in rows[:i])


@pytest.mark.parametrize("alpha", [0, 1])
def test_apfls_common_model_is_fedavgs_whatever_the_weight(alpha: float) -> None:
    found = sgd("apfl:APFL", f"strategy.alpha={alpha}")
    np.testing.assert_allclose(bank(found), bank(fedavg()), atol=1e-6)
    used = found.strategy.own_models(found.strategy.context.models)
    if alpha == 0:
        assert used == {}
    if alpha == 1:
        local = sgd("local").strategy
        models = local.final_models(local.context.models).bank
        for key, number in local.assignment.items():
            np.testing.assert_allclose(used[key], models[number], atol=1e-6)
