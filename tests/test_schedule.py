"""The learning rate over the rounds, at clients and in the server's gradient step; and how long clients train."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_task, message_settings
from florets.strategies.base.averaging import GradientAveraging
from florets.strategies.ifca.strategy import IFCA
from florets.task.training.settings import Training
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, thetas


@pytest.mark.parametrize(
    ("name", "rounds", "factor", "expected"),
    [
        ("constant", None, None, [1, 1, 1, 1, 1]),
        ("step", 2, 0.1, [1, 1, 0.1, 0.1, 0.01]),
        ("exponential", None, 0.5, [1, 0.5, 0.25, 0.125, 0.0625]),
        ("cosine", 2, None, [1, 0.5, 0, 0, 0]),
        ("cosine", 4, 0.2, [1, 0.6 + 0.4 * np.cos(np.pi / 4), 0.6, 0.6 - 0.4 * np.cos(np.pi / 4), 0.2]),
        ("inverse_sqrt", None, None, [1, 2**-0.5, 3**-0.5, 0.5, 5**-0.5]),
        ("inverse_sqrt", 4, None, [1, 1.25**-0.5, 1.5**-0.5, 1.75**-0.5, 2**-0.5]),
    ],
)
def test_factors_of_the_first_five_rounds(
    name: Any, rounds: int | None, factor: float | None, expected: list[float]
) -> None:
    training = Training(schedule=name, schedule_rounds=rounds, schedule_factor=factor)
    assert [training.rate_factor(server_round) for server_round in range(1, 6)] == pytest.approx(expected, abs=1e-12)
    assert training.rate_factor(0) == 1
    assert Training.received(ConfigRecord(training.record())) == training


def settings_of(*overrides: str, server_round: int = 1) -> ConfigRecord:
    config = compose(list(overrides))
    record = message_settings(config, build_task(config))
    record[kinds.SERVER_ROUND] = server_round
    return record


def trained_with(*overrides: str, server_round: int = 1) -> Training:
    return Training.received(settings_of(*overrides)).in_round(server_round)


def test_clients_train_at_the_rate_of_the_round() -> None:
    overrides = [
        "train.learning_rate=0.2",
        "train.schedule=step",
        "train.schedule_rounds=3",
        "train.schedule_factor=0.5",
    ]
    rates = [trained_with(*overrides, server_round=r).learning_rate for r in (1, 3, 4, 7)]
    assert rates == [0.2, 0.2, 0.1, 0.05]
    assert trained_with("train.schedule=cosine", "num_rounds=4", server_round=3).learning_rate == 0.005


def test_the_servers_step_follows_the_schedule() -> None:
    # Both clients pull towards 1 with gradient 2 (theta - 1): steps of 0.5, then of 0.25.
    settings = ConfigRecord(Training(schedule="exponential", schedule_factor=0.5).record())
    strategy = IFCA(averaging=GradientAveraging(0.25))
    found = strategy.start(FakeClients([1.0, 1.0]).grid(), models(0.0), num_rounds=2, train_config=settings)
    assert thetas(found.arrays) == pytest.approx([0.5 + 0.125 * 2 * 0.5])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.local_steps=5", "train.local_epochs=2"],
            "train.local_steps=5: says with train.local_epochs=2 twice",
        ),
        (
            ["experiment=clove/linear", "train.class_weights=balanced"],
            "train.class_weights=balanced: weighs classes, and task.loss=squared_error has none",
        ),
        (["train.local_steps=0"], "train.local_steps=0: must be at least 1"),
        (["train.schedule=step"], "train.schedule=step: needs train.schedule_rounds"),
        (["train.schedule=exponential"], "train.schedule=exponential: needs train.schedule_factor"),
        (["train.schedule_factor=0.5"], "train.schedule_factor=0.5: has no effect with train.schedule=constant"),
        (["train.schedule=cosine", "train.schedule_factor=1.5"], "train.schedule_factor=1.5: must be at least 0"),
        (["train.schedule=inverse_sqrt", "train.schedule_rounds=0"], "train.schedule_rounds=0: must be at least 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(overrides)
