"""The real ClientApp: each handler on a small task, against plain PyTorch, and the deadline of a node's process."""

import faulthandler
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg as StockFedAvg
from torch import nn

from florets.client_app.app import _HANDLERS, app, within_deadline
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid, as_flowers_process
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.layers import untrained_entries
from florets.task.task import Task
from florets.task.wire import Layout, bank, codec, kinds
from florets.task.wire.replies import Introduction, Losses, SelectedUpdate, read_update
from tests.fakes import asker
from tests.own_functions import flagged, frozen_first, net

CONFIG = compose(["num_clients=4", "k=3", "task.model_options={hidden: [8]}"])
TASK = build_task(CONFIG)
BANK = build_models(CONFIG, TASK)
SETTINGS = message_settings(CONFIG, TASK)

Ask = Callable[..., RecordDict]


@pytest.fixture
def ask() -> Ask:
    send = asker(SETTINGS, 1)
    return lambda kind, arrays, node=2, **settings: send(kind, settings, node, arrays=arrays)


def wrong(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(dim=1) != labels).double().mean()


def plain_losses(node: int, measure: Callable[..., torch.Tensor] = nn.functional.cross_entropy) -> list[float]:
    data, losses = TASK.client(node - 2), []
    for arrays in bank.models(BANK):
        module = TASK.build_model()
        module.load_state_dict({name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})
        outputs = module.eval()(data.x_train)
        losses.append(measure(outputs, data.y_train).item())
    return losses


def test_hello_tells_key_examples_true_cluster_and_code(ask: Ask) -> None:
    hello = codec.read(Introduction, ask(kinds.HELLO, None, node=5))
    assert (hello.key, hello.cluster, hello.num_partitions, hello.device) == ("3", 3, 4, "cpu")
    assert hello.num_examples == len(TASK.client(3).x_train)


def test_losses_are_the_mean_loss_of_each_model_on_all_training_data(ask: Ask) -> None:
    read = codec.read(Losses, ask(kinds.LOSSES, BANK), K=3)
    np.testing.assert_allclose(read.losses, plain_losses(2), rtol=1e-5)
    assert not read.kept


def test_a_kept_model_is_trained_as_if_it_had_come_with_the_message(ask: Ask) -> None:
    assert codec.read(Losses, ask(kinds.LOSSES, BANK, **{kinds.BANK: "round 7"}), K=3).kept
    kept = ask(kinds.TRAIN, None, **{kinds.BANK: "round 7", kinds.MODEL_INDEX: 2})
    sent = ask(kinds.TRAIN, bank.model(BANK, 2))
    assert read_update(kept, LAYOUT, 2).vector.tobytes() == read_update(sent, LAYOUT, 2).vector.tobytes()


def test_models_that_are_not_kept_are_never_replaced_by_others(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {kinds.BANK: "round 8", kinds.MODEL_INDEX: 0}
    ask(kinds.LOSSES, BANK, **{kinds.BANK: "round 7"})
    with pytest.raises(AssertionError, match="no longer has the models of this round"):
        ask(kinds.TRAIN, None, **train)
    ask(kinds.LOSSES, BANK, **{kinds.BANK: "round 8"})
    ask(kinds.TRAIN, None, **train)
    # Another process, or this one started anew, has nothing.
    monkeypatch.setattr(session, "_kept", None)
    with pytest.raises(AssertionError, match="no longer has the models of this round"):
        ask(kinds.TRAIN, None, **train)


LAYOUT = Layout.of(bank.model(BANK, 0))


def test_selection_trains_the_model_with_the_lowest_loss(ask: Ask) -> None:
    update = codec.read(SelectedUpdate, ask(kinds.TRAIN_SELECT, BANK), layout=LAYOUT, K=3)
    assert update.model == int(np.argmin(plain_losses(2)))
    assert update.losses is not None
    np.testing.assert_allclose(update.losses, plain_losses(2), rtol=1e-5)
    alone = read_update(ask(kinds.TRAIN, bank.model(BANK, update.model)), LAYOUT, update.model)
    assert alone.vector.tobytes() == update.vector.tobytes()


def test_selection_by_errors_trains_the_model_that_classifies_most_samples_rightly(ask: Ask) -> None:
    update = codec.read(SelectedUpdate, ask(kinds.TRAIN_SELECT, BANK, **{kinds.BY_ERRORS: True}), layout=LAYOUT, K=3)
    assert update.losses is not None
    np.testing.assert_allclose(update.losses, plain_losses(2, wrong))
    assert update.model == int(np.argmin(plain_losses(2, wrong)))


def context(**node_config: bool | int | float | str) -> Context:
    return Context(run_id=1, node_id=2, node_config=dict(node_config), state=RecordDict(), run_config={})


def test_a_node_that_is_not_simulated_never_opens_a_folder_that_the_server_names() -> None:
    with pytest.raises(ValueError, match="has no data-dir in its node config"):
        session.task(SETTINGS, context(**{"partition-id": 0}))


def test_a_node_makes_no_data() -> None:
    with pytest.raises(ValueError, match=r"task.data=digits is synthetic, for simulations: .* data-dir"):
        session.task(SETTINGS, context(**{"partition-id": 0, "data-dir": "mine"}))


def test_flowers_own_fedavg_drives_the_app_and_agrees_with_ours() -> None:
    first = bank.model(BANK, 0)
    stock = StockFedAvg().start(
        LocalGrid(app, 4), first, num_rounds=2, train_config=SETTINGS, evaluate_config=SETTINGS
    )
    ours = FedAvg().start(LocalGrid(app, 4), first, num_rounds=2, train_config=SETTINGS)
    np.testing.assert_allclose(LAYOUT.flatten(bank.model(ours.arrays, 0)), LAYOUT.flatten(stock.arrays), atol=1e-6)
    assert stock.evaluate_metrics_clientapp[2]["eval_acc"] > 0


CONTEXT = Context(1, 2, {}, RecordDict(), {})


def handle(seconds: float, ttl: float = 0.1) -> Any:
    def answer(message: Any, context: Any) -> Any:
        time.sleep(seconds)
        return "answer"

    message = SimpleNamespace(metadata=SimpleNamespace(ttl=ttl))
    return within_deadline(cast(Any, message), CONTEXT, answer)


def test_every_handler_is_held_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app._mods == [within_deadline]
    as_flowers_process()
    monkeypatch.setattr(sys, "argv", ["flwr-clientapp"])
    deadlines: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: deadlines.append(seconds))
    for kind in _HANDLERS:
        # Without settings no client can answer.
        with pytest.raises(ValueError, match="has no 'config'"):
            app(Message(RecordDict(), 7, kind, ttl=5.0), CONTEXT)
    assert deadlines == [5.0] * len(_HANDLERS)


def test_a_nodes_process_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/flwr-clientapp", "--token", "x"])
    pid = os.fork()
    if pid == 0:
        try:
            handle(20)
        finally:
            os._exit(2)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 1
    # The node's owner reads where it hung.
    said = capfd.readouterr().err
    assert "Timeout (" in said
    assert "in answer" in said


def test_a_process_that_is_not_one_messages_alone_is_never_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: pytest.fail("a deadline was set"))
    assert handle(0) == "answer"


STATISTICS = ["2.running_mean", "2.running_var", "2.num_batches_tracked"]


def configured(*overrides: str) -> tuple[Config, Task, ConfigRecord]:
    config = compose(["num_clients=16", "k=2", "task.model=tests.own_functions:net", *overrides])
    task = build_task(config)
    return config, task, message_settings(config, task)


def test_buffers_and_frozen_parameters_are_untrained() -> None:
    assert untrained_entries(net((1, 8, 8), 10)) == STATISTICS
    assert untrained_entries(flagged((1, 8, 8), 10)) == ["flag", *STATISTICS]
    assert untrained_entries(frozen_first((1, 8, 8), 10)) == ["1.weight", "1.bias"]


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
