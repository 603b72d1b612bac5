"""Batch normalisation and dropout: what makes profiles and estimates, and how gradients of such models are taken."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import nn

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_gp.strategy import CFLGP
from florets.task.layers import untrained_entries
from florets.task.task import Task
from florets.task.training.loop import gradient
from florets.task.wire import Layout, bank, kinds
from tests.own_functions import flagged, frozen_first, net, thinned

STATISTICS = ["2.running_mean", "2.running_var", "2.num_batches_tracked"]


def configured(*overrides: str) -> tuple[Config, Task, ConfigRecord]:
    config = compose(["num_clients=16", "k=2", "task.model=tests.own_functions:net", *overrides])
    task = build_task(config)
    return config, task, message_settings(config, task)


def ran(*overrides: str) -> tuple[Strategy, ArrayRecord]:
    config, task, settings = configured(*overrides)
    strategy = build_strategy(config, task)
    result = strategy.start(
        LocalGrid(app, config.num_clients), build_models(config, task), config.num_rounds, train_config=settings
    )
    return strategy, result.arrays


def test_buffers_and_frozen_parameters_are_untrained() -> None:
    assert untrained_entries(net((1, 8, 8), 10)) == STATISTICS
    assert untrained_entries(flagged((1, 8, 8), 10)) == ["flag", *STATISTICS]
    assert untrained_entries(frozen_first((1, 8, 8), 10)) == ["1.weight", "1.bias"]


def test_running_statistics_make_no_profile() -> None:
    strategy, models = ran("strategy=cfl_gp", "averaging=models", "num_rounds=2", "strategy.period=2")
    assert isinstance(strategy, CFLGP)
    assert strategy.state.profiles is not None
    parameters = sum(p.numel() for p in net((1, 8, 8), 10).parameters())
    assert strategy.state.profiles.profile.blocks[0].shape[1] == parameters < Layout.of(bank.model(models, 0)).size


def asked_for_gradient(settings: ConfigRecord, arrays: ArrayRecord, **more: str | int) -> RecordDict:
    config = settings.copy()
    config.update({kinds.SERVER_ROUND: 1, kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: 0, **more})
    content = RecordDict({kinds.CONFIG: config, kinds.ARRAYS: arrays})
    (reply,) = LocalGrid(app, 16).send_and_receive([Message(content, 2, kinds.TRAIN)])
    assert not reply.has_error(), reply.error.reason
    return reply.content


def test_a_gradient_of_batch_normalisation_is_taken_in_train_mode() -> None:
    config, task, settings = configured()
    first = bank.model(build_models(config, task), 0)
    found = asked_for_gradient(settings, first)[kinds.ARRAYS]
    module, data = task.build_model(), task.client(0)
    module.load_state_dict({name: torch.from_numpy(array.numpy()) for name, array in first.items()})
    nn.functional.cross_entropy(module.train()(data.x_train), data.y_train).backward()  # type: ignore[no-untyped-call]
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(found[name].numpy(), parameter.grad.numpy(), atol=1e-6)
    for name in STATISTICS:
        np.testing.assert_allclose(found[name].numpy(), module.state_dict()[name].numpy(), rtol=1e-6)


def test_gradients_drop_out_and_the_draw_can_be_repeated() -> None:
    torch.manual_seed(0)
    module = thinned((1, 8, 8), 10)
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 10

    def taken(seed: int) -> Mapping[str, np.ndarray]:
        return gradient(module, x, y, "cross_entropy", None, np.random.default_rng(seed))[0]

    first, again, other = taken(0), taken(0), taken(1)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["3.weight"], other["3.weight"])
    # Of half of the inputs of the last layer, each weight's gradient is zero in some samples, so the columns differ.
    module.eval()
    nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
    assert not np.allclose(first["3.weight"], module[3].weight.grad)
