"""FedEM: responsibilities, shares, mixed probabilities; its exact properties; faults; clients that come later."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional as F

from florets.commands.main import main
from florets.strategies.base.models import Models
from florets.task.training.mixture import Mixture, evaluated_mixture, fit_shares, responsibilities
from florets.zoo.fedem import FedEM
from tests import fakes
from tests.method_runs import SMALL, play

SHORT = ("strategy=fedem", "num_rounds=2")


def test_responsibilities_are_the_posterior_of_the_model_by_hand() -> None:
    # Likelihoods 1/2 and 1/4, then 1/8 and 1/2.
    losses = np.log(np.array([[2.0, 4.0], [8.0, 2.0]]))
    found, loss = responsibilities(losses, np.array([0.5, 0.5]))
    np.testing.assert_allclose(found, [[2 / 3, 1 / 3], [1 / 5, 4 / 5]])
    assert loss == pytest.approx(-(np.log(3 / 8) + np.log(5 / 16)) / 2)
    found, _ = responsibilities(losses, np.array([1.0, 0.0]))
    assert found.tolist() == [[1, 0], [1, 0]]


def test_fitted_shares_are_those_of_a_general_solver() -> None:
    losses = np.random.default_rng(1).exponential(2.0, size=(40, 3))
    shares = fit_shares(losses)
    assert shares.sum() == pytest.approx(1.0)

    def objective(logits: np.ndarray) -> float:
        weights = np.exp(logits - logits.max())
        return -float(np.log(np.exp(-losses) @ (weights / weights.sum())).mean())

    best = minimize(objective, np.zeros(3), tol=1e-12)
    assert responsibilities(losses, shares)[1] == pytest.approx(best.fun, abs=1e-7)


def linear_models(count: int) -> tuple[nn.Linear, list[dict[str, torch.Tensor]]]:
    return nn.Linear(4, 3), [nn.Linear(4, 3).state_dict() for _ in range(count)]


def test_probabilities_are_mixed_and_not_logits() -> None:
    module, states = linear_models(2)
    x, y, shares = torch.randn(9, 4), torch.arange(9) % 3, np.array([0.7, 0.3])
    logits = [F.linear(x, state["weight"], state["bias"]) for state in states]
    expected = 0.7 * logits[0].softmax(1) + 0.3 * logits[1].softmax(1)
    logs = Mixture(module, states, shares, "cross_entropy")(x).detach()
    np.testing.assert_allclose(logs.exp(), expected, rtol=1e-5)
    found = evaluated_mixture(module, states, shares, x, y, "cross_entropy")
    assert found.loss == pytest.approx(float(F.nll_loss(expected.log(), y)), rel=1e-5)
    assert found.accuracy == pytest.approx(float((expected.argmax(1) == y).float().mean()))
    # Values of a regression are mixed as they are.
    values = Mixture(module, states, shares, "squared_error")(x).detach()
    np.testing.assert_allclose(values, 0.7 * logits[0] + 0.3 * logits[1], rtol=1e-5, atol=1e-6)


def test_one_model_is_fedavg_to_the_bit_and_so_are_its_tests() -> None:
    for more in ((), ("strategy.fraction_train=0.5", "fine_tune_epochs=1")):
        mixed, plain = (play(f"strategy={name}", *more, "k=1") for name in ("fedem", "fedavg"))
        assert mixed.final == plain.final
        assert mixed.reports[-1].evaluations == {
            key: found for key, found in plain.reports[-1].evaluations.items() if key in mixed.strategy.state.shares
        }


@pytest.mark.slow
def test_the_mixtures_loss_never_rises_under_full_batch_steps() -> None:
    found = play(
        "strategy=fedem", "num_rounds=10", "train=sgd", "train.learning_rate=0.1", "train.local_steps=1",
        "train.batch_size=10000", "strategy.averaged_by=examples",
    )  # fmt: skip
    losses = np.array([report.train_loss for report in found.reports])
    assert np.diff(losses).max() <= 1e-6
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.slow
def test_shares_of_a_mixture_of_two_concepts_are_recovered() -> None:
    found = play("experiment=fedem/digits_mixture", "eval_every=100")
    clients = found.strategy.federation.clients.values()
    true = np.array([[0.8, 0.2] if client.cluster == 0 else [0.2, 0.8] for client in clients])
    shares = np.array([found.strategy.state.shares[client.key] for client in clients])
    # The models' order is the start's.
    assert min(np.abs(shares - true).mean(), np.abs(shares[:, ::-1] - true).mean()) <= 0.05


def test_a_client_that_was_away_keeps_its_shares_and_one_that_never_came_has_none() -> None:
    found = play(*SHORT, "strategy.fraction_train=0.5")
    took_part = [set(report.participants) for report in found.reports]
    assert found.strategy.state.shares.keys() == took_part[0] | took_part[1]
    assert found.reports[-1].evaluations.keys() == found.strategy.state.shares.keys()
    first = play("strategy=fedem", "num_rounds=1", "strategy.fraction_train=0.5").strategy.state.shares
    away = took_part[0] - took_part[1]
    assert away
    for key in away:
        assert found.strategy.state.shares[key].tobytes() == first[key].tobytes()
        assert found.reports[-1].assignment[key] == int(first[key].argmax())


def test_equal_models_are_refused() -> None:
    with pytest.raises(ValueError, match="all 2 initial models are equal"):
        FedEM(k=2).check(Models(fakes.models(1.0, 1.0)))


def written(tmp_path: Path, strategy: str, *more: str) -> list[dict[str, str]]:
    given = [*SMALL, f"strategy={strategy}", *more, f"results_dir={tmp_path}", "-q", "pictures=false"]
    assert main(given) == 0
    (path,) = tmp_path.rglob("clients.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("strategy", ["fedem", "fedrc", "fedsoft"])
def test_a_runs_clients_have_the_shares_that_the_server_keeps(tmp_path: Path, strategy: str) -> None:
    rows = written(tmp_path, strategy, "strategy.fraction_train=0.5")
    kept = play(f"strategy={strategy}", "strategy.fraction_train=0.5").strategy.mixtures
    assert 3 <= len(kept) < 6
    for row in rows:
        told = [row["share_0"], row["share_1"]]
        mixture = kept.get(row["client"])
        # Who never took part has none.
        assert told == (["", ""] if mixture is None else [repr(float(share)) for share in mixture])
        if mixture is not None:
            assert row["found_cluster"] == str(int(mixture.argmax()))
