"""FedRC: responsibilities against the frequency of classes; its exact properties; faults; clients that come later."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from florets.api.new_data import assign_new
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.build import build_models, build_task
from florets.server_app.run_models import load_run
from florets.strategies.base.models import Models
from florets.task.training.mixture import class_rarity, class_sums, fit_shares, responsibilities, sample_losses
from florets.zoo import fedem as handlers
from tests.method_runs import SMALL, play


def test_responsibilities_divide_by_the_share_of_the_class_by_hand() -> None:
    # Likelihoods 1/2 and 1/4, then 1/8 and 1/2; model 0 has three of four samples of class 0, model 1 one of five.
    losses = np.log(np.array([[2.0, 4.0], [8.0, 2.0]]))
    rarity = class_rarity(np.array([0, 1]), np.array([[0.75, 0.25], [0.2, 0.8]]))
    np.testing.assert_allclose(np.exp(-rarity), [[0.75, 0.2], [0.25, 0.8]])
    found, loss = responsibilities(losses, np.array([0.5, 0.5]), rarity)
    # 1/2 : 3/4 = 2/3 against 1/4 : 1/5 = 5/4; 1/8 : 1/4 = 1/2 against 1/2 : 4/5 = 5/8.
    np.testing.assert_allclose(found, [[8 / 23, 15 / 23], [4 / 9, 5 / 9]])
    # The loss that is told is the mixture's.
    assert loss == responsibilities(losses, np.array([0.5, 0.5]))[1]


def test_class_shares_are_the_clients_responsibilities_and_come_back_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[np.ndarray | None] = []
    original = handlers.responsibilities

    def watched(losses: np.ndarray, shares: np.ndarray, rarity: np.ndarray | None = None) -> Any:
        seen.append(rarity)
        return original(losses, shares, rarity)

    monkeypatch.setattr(handlers, "responsibilities", watched)
    found = play("strategy=fedrc", "num_rounds=2", "train=sgd")
    task = build_task(compose([*SMALL, "strategy=fedrc"]))
    models = Models(build_models(compose([*SMALL, "strategy=fedrc"]), task))
    states = [{n: torch.from_numpy(a.numpy().copy()) for n, a in models.one(k).items()} for k in range(2)]
    module, sums = task.build_model(), np.zeros((2, 10))
    for client in range(6):
        # Of round 1 nothing is known: every class counts alike.
        np.testing.assert_allclose(seen[client], np.log(10.0))
        data = task.client(client)
        losses = sample_losses(module, states, data.x_train, data.y_train, "cross_entropy")
        sums += class_sums(original(losses, np.array([0.5, 0.5]))[0], data.y_train.numpy(), 10)
    sums = np.maximum(sums, 1e-8)
    expected = class_rarity(task.client(0).y_train.numpy(), sums / sums.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(seen[6], expected, rtol=1e-5)
    state = found.strategy.state
    for key, own in state.class_sums.items():
        np.testing.assert_allclose(own.sum(axis=1), state.shares[key] * len(task.client(int(key)).y_train), rtol=1e-5)


@pytest.mark.slow
def test_it_parts_concepts_where_fedem_parts_labels() -> None:
    found = {name: play("experiment=fedrc/digits_concepts", f"strategy={name}").ari for name in ("fedrc", "fedem")}
    assert found["fedrc"] == 1.0
    assert found["fedem"] is not None
    assert found["fedem"] < 0.5


@pytest.mark.slow
def test_a_new_client_finds_its_shares_by_the_runs_class_shares(tmp_path: Path) -> None:
    given = [*SMALL, "strategy=fedrc", "quiet=true"]
    folder = Path(run(compose([*given, f"results_dir={tmp_path}"]), given).folder)
    saved, part = load_run(folder), build_task(compose(given)).client(0)
    assert saved.class_shares is not None
    states = [{name: torch.from_numpy(values) for name, values in model.items()} for model in saved.models]
    losses = sample_losses(saved.task.build_model(), states, part.x_test, part.y_test, "cross_entropy")
    expected = fit_shares(losses, class_rarity(part.y_test.numpy(), saved.class_shares))
    found = assign_new(saved, part.x_test.numpy(), part.y_test.numpy())
    np.testing.assert_allclose(found.shares, expected, atol=1e-3)
