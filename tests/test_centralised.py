"""Centralised training: a reference that trains on all clients' data together, in simulations alone."""

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from torch import nn

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.centralised.strategy import TRAIN_POOLED
from florets.task.wire import bank, kinds
from tests.fakes import message_to
from tests.method_runs import SMALL, play

FULL = ("strategy=centralised", "train=sgd", "train.learning_rate=0.3", "train.batch_size=100000", "num_rounds=1")
CONFIG = compose([*(text for text in SMALL if not text.startswith("num_rounds")), *FULL])
TASK = build_task(CONFIG)


def test_a_step_is_the_gradient_of_the_mean_loss_over_everybodys_samples() -> None:
    found, start = play(*FULL, "eval_every=1"), bank.model(build_models(CONFIG, TASK), 0)
    parts = [TASK.client(number) for number in range(6)]
    module = TASK.build_model()
    module.load_state_dict({name: torch.from_numpy(array.numpy().copy()) for name, array in start.items()})
    x, y = torch.cat([part.x_train for part in parts]), torch.cat([part.y_train for part in parts])
    nn.functional.cross_entropy(module(x), y).backward()
    trained = found.models.one(0)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        expected = (parameter - 0.3 * parameter.grad).detach().numpy()
        np.testing.assert_allclose(trained[name].numpy(), expected, atol=1e-6)
    # One client was asked to train, everybody to test, and each sample counts once.
    report = found.reports[0]
    assert set(report.evaluations) == set(report.assignment) == set("012345")
    assert set(report.assignment.values()) == {0}
    assert report.replies["ok"] == 1 + 6
    assert report.work.gradients == len(x)


def test_a_real_node_refuses() -> None:
    LocalGrid(app, 1)  # lets messages be built
    settings, models = message_settings(CONFIG, TASK), bank.model(build_models(CONFIG, TASK), 0)
    content = RecordDict({kinds.CONFIG: settings, kinds.ARRAYS: models})
    context = Context(1, 2, {"partition-id": 1, "data-dir": "here"}, RecordDict(), {})
    with pytest.raises(ValueError, match="a real node does not have; use strategy=fedavg"):
        app(message_to(content, 2, TRAIN_POOLED), context)
