"""FedSoft: importance weights, centres; Local-only where lambda is 0; faults; clients that come later."""

import numpy as np
import pytest
import torch

from florets.conf.compose import compose
from florets.server_app.build import build_models, build_task
from florets.strategies.base.models import Models
from florets.task.training.mixture import sample_losses
from tests.method_runs import SMALL, Played, play

SOFT = "strategy=fedsoft"


def personal(found: Played) -> dict[str, np.ndarray]:
    return {key: vector.astype(np.float64) for key, vector in found.strategy.state.personal.data.items()}


def test_with_lambda_0_clients_train_alone_and_centres_are_their_means() -> None:
    alone = play("strategy=local", "num_rounds=3", "strategy.fraction_train=0.5")
    soft = play(SOFT, "num_rounds=3", "strategy.fraction_train=0.5", "strategy.proximal_lambda=0")
    own, local = soft.strategy.state.personal.data, alone.strategy.state.personal.data
    assert own.keys() == local.keys()
    assert all(own[key].tobytes() == local[key].tobytes() for key in local)
    last = soft.reports[-1].participants
    vectors, estimates = personal(soft), soft.strategy.state.estimates
    task = build_task(compose([*SMALL, SOFT]))
    weights = np.array([estimates[key].weights * task.num_examples_of(int(key)) for key in last])
    expected = weights.T @ np.stack([vectors[key] for key in last]) / weights.sum(axis=0)[:, np.newaxis]
    np.testing.assert_allclose(soft.models.bank, expected, rtol=1e-5, atol=1e-7)


def test_a_step_is_that_of_the_loss_and_of_the_distances_to_all_centres() -> None:
    sgd = ("train=sgd", "train.local_steps=1", "train.batch_size=1000", "train.learning_rate=0.1")
    tied, free = (play(SOFT, *sgd, "num_rounds=1", f"strategy.proximal_lambda={value}") for value in ("2", "0"))
    config = compose([*SMALL, SOFT])
    start = Models(build_models(config, build_task(config))).bank
    pulled, plain = personal(tied), personal(free)
    for key, estimate in tied.strategy.state.estimates.items():
        pull = sum(share * (start[0] - centre) for share, centre in zip(estimate.weights, start, strict=True))
        np.testing.assert_allclose(pulled[key], plain[key] - 0.1 * 2 * pull, atol=1e-6)
        assert np.abs(pull).max() > 0.01


@pytest.mark.slow
def test_clients_count_the_samples_that_each_model_explains_best() -> None:
    found = play(SOFT, "num_rounds=1")
    config = compose([*SMALL, SOFT])
    task = build_task(config)
    models = Models(build_models(config, task))
    states = [{n: torch.from_numpy(a.numpy().copy()) for n, a in models.one(k).items()} for k in range(2)]
    for key, estimate in found.strategy.state.estimates.items():
        data = task.client(int(key))
        losses = sample_losses(task.build_model(), states, data.x_train, data.y_train, "cross_entropy")
        counts = np.bincount(losses.argmin(axis=1), minlength=2)
        np.testing.assert_allclose(estimate.weights, np.where(counts, counts / counts.sum(), 1e-4))
