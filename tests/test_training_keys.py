"""Keys of local training: how they travel, schedules, and what is refused."""

from typing import Any

import pytest
from flwr.app import ConfigRecord

from florets.conf.compose import compose
from florets.server_app.build import build_task, message_settings
from florets.task.training.settings import KEYS, Training
from florets.task.wire import kinds
from tests.test_caps import node, sent  # noqa: F401 - a fixture


def test_every_key_reaches_the_clients_and_what_is_not_set_does_not_travel() -> None:
    config = compose([])
    usual = {"learning-rate", "local-epochs", "batch-size", "optimizer", "momentum", "weight-decay"}
    assert message_settings(config, build_task(config)).keys() & KEYS.values() == usual
    own = ("train.optimizer=sgd", "train.local_steps=5")
    config = compose([*own, "train.schedule=exponential", "train.schedule_factor=0.5"])
    settings = message_settings(config, build_task(config))
    restarts = compose(["train.schedule=cosine_restarts", "train.schedule_rounds=3"])
    restarting = message_settings(restarts, build_task(restarts))
    by_newton = compose(["train.solver=newton", "train.ridge=2"])
    newton = message_settings(by_newton, build_task(by_newton))
    assert newton.keys() >= {"solver", "ridge"}
    assert settings.keys() | newton.keys() | restarting.keys() >= set(KEYS.values())
    assert Training.received(settings) == config.train


def test_a_node_refuses_wrong_settings(node: dict[str, Any]) -> None:  # noqa: F811
    with pytest.raises(ValueError, match="has optimizer='lbfgs': must be one of adam"):
        sent(node, kinds.TRAIN, {"optimizer": "lbfgs"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"schedule": "exponential", "schedule_factor": 0.5}, [1, 0.5, 0.25, 0.125, 0.0625]),
        ({"schedule": "cosine_restarts", "schedule_rounds": 2}, [1, 0.5, 1, 0.5, 1]),
    ],
)
def test_factors_of_the_first_five_rounds(values: dict[str, Any], expected: list[float]) -> None:
    training = Training(**values)
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
    overrides = ["train.learning_rate=0.2", "train.schedule=exponential", "train.schedule_factor=0.5"]
    rates = [trained_with(*overrides, server_round=r).learning_rate for r in (1, 2, 3)]
    assert rates == [0.2, 0.1, 0.05]
