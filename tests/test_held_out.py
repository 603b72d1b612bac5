"""Losses on held-out data, and probes: what clients are sent, what they train on, and what CLoVE makes of it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.ifca.strategy import IFCA
from florets.task.client_data import hold_out
from florets.task.randomness import Purpose, generator
from florets.task.settings import left_after
from florets.task.task import ClientData
from florets.task.wire import Layout, bank, codec, kinds
from florets.task.wire.replies import Losses, SelectedUpdate, read_update
from tests.fakes import FakeClients, asker, lost, models, thetas

CONFIG = compose(["num_clients=4", "k=3", "task.model_options={hidden: [8]}", "loss_data=held_out"])
TASK = build_task(CONFIG)
BANK = build_models(CONFIG, TASK)
LAYOUT = Layout.of(bank.model(BANK, 0))
HELD_OUT = {kinds.LOSS_DATA: kinds.HELD_OUT}

Ask = Callable[..., RecordDict]


@pytest.fixture
def ask() -> Ask:
    send = asker({**message_settings(CONFIG, TASK), **HELD_OUT}, 1)
    return lambda kind, arrays, **others: send(kind, others, 4, arrays=arrays)


def mine() -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that client 2 trains on and holds out, drawn here as the documentation says."""
    count = len(TASK.client(2).x_train)
    drawn = generator(0, 0, Purpose.HELD_OUT, 2).permutation(count)
    return np.sort(drawn[count // 5 :]), np.sort(drawn[: count // 5])


def loss_and_gradient(model: int, rows: np.ndarray) -> tuple[float, np.ndarray]:
    data, module = TASK.client(2), TASK.build_model()
    module.load_state_dict({name: torch.from_numpy(a.numpy()) for name, a in bank.model(BANK, model).items()})
    loss = torch.nn.functional.cross_entropy(module(data.x_train[rows]), data.y_train[rows])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])


def samples(count: int, *shape: int) -> ClientData:
    x = torch.arange(float(count)).reshape(count, *(1 for _ in shape)).expand(count, *shape)
    return ClientData(x, torch.arange(count), x[:1], torch.arange(1), cluster=3)


@pytest.mark.parametrize(("count", "held"), [(2, 1), (9, 1), (17, 3)])
def test_a_fifth_is_held_out_and_not_trained_on(count: int, held: int) -> None:
    data = samples(count, 1, 2, 2)
    rest, (x, y) = hold_out(data, np.random.default_rng(1))
    assert len(x) == len(y) == held
    assert len(rest.x_train) == left_after(count) == count - held
    assert sorted([*y.tolist(), *rest.y_train.tolist()]) == list(range(count))
    # Inputs and targets belong together, in their old order; test data and cluster stay.
    assert rest.x_train[:, 0, 0, 0].tolist() == rest.y_train.tolist() == sorted(rest.y_train.tolist())
    assert x[:, 0, 0, 0].tolist() == y.tolist()
    assert rest.x_test is data.x_test
    assert rest.cluster == 3
    assert hold_out(data, np.random.default_rng(1))[1][1].tolist() == y.tolist()


@pytest.mark.parametrize("server_round", [1, 7])
def test_losses_are_taken_on_the_same_fifth_in_every_round(ask: Ask, server_round: int) -> None:
    read = codec.read(Losses, ask(kinds.LOSSES, BANK, **{kinds.SERVER_ROUND: server_round}), K=3)
    rest, held = mine()
    np.testing.assert_allclose(read.losses, [loss_and_gradient(k, held)[0] for k in range(3)], rtol=1e-5)
    assert read.num_examples == len(rest)


def test_training_and_gradients_leave_the_fifth_alone(ask: Ask) -> None:
    rest, _ = mine()
    gradient = {kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: 0}
    update = read_update(ask(kinds.TRAIN, bank.model(BANK, 1), **gradient), LAYOUT, 1)
    loss, expected = loss_and_gradient(1, rest)
    np.testing.assert_allclose(update.vector, expected, rtol=1e-3, atol=1e-6)
    assert update.train_loss == pytest.approx(loss, rel=1e-5)
    # One step of plain SGD on all samples that are left is that gradient.
    step = {"optimizer": "sgd", "learning-rate": 0.5, "batch-size": 10_000}
    trained = read_update(ask(kinds.TRAIN, bank.model(BANK, 1), **step), LAYOUT, 1)
    start = LAYOUT.flatten(bank.model(BANK, 1))
    np.testing.assert_allclose(trained.vector, start - 0.5 * expected, rtol=1e-3, atol=1e-5)
    assert trained.num_examples == update.num_examples == len(rest)


@pytest.mark.parametrize("strategy", [CLoVE(k=2, loss_data="held_out"), IFCA(k=2, loss_data="held_out")])
def test_every_message_but_the_tests_says_what_is_held_out(strategy: CLoVE | IFCA) -> None:
    clients = FakeClients([0.0, 0.2, 10.0, 10.2])
    strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=5)
    asked = {kinds.LOSSES, kinds.TRAIN, kinds.TRAIN_SELECT}
    for (kind, _, _), config in zip(clients.seen, clients.configs, strict=True):
        assert (config.get(kinds.LOSS_DATA) == kinds.HELD_OUT) == (kind in asked), kind


def test_a_strategy_without_loss_vectors_cannot_hold_any_out() -> None:
    with pytest.raises(ValueError, match="loss_data=held_out: the strategy cannot follow it"):
        FedAvg(loss_data="held_out")
    with pytest.raises(ConfigError, match="loss_data=held_out: strategy fedavg has no such choice"):
        compose(["strategy=fedavg", "loss_data=held_out"])
    assert compose(["strategy=ifca"]).loss_data == "train"


def test_a_probe_tells_groups_apart_where_equal_models_cannot() -> None:
    # On models 5.1 and 5.1 the losses are 26.01, 24.01, 24.01, 26.01 twice: clients 0 and 3 look alike, and 1 and 2.
    targets = [0.0, 0.2, 10.0, 10.2]
    blind = CLoVE(k=2, first_round="evaluate")
    blind.start(FakeClients(targets).grid(), models(5.1, 5.1), num_rounds=1)
    assert blind.assignment["0"] == blind.assignment["3"] != blind.assignment["1"] == blind.assignment["2"]
    # On a probe of 0 they are 0, 0.04, 100 and 104.04.
    strategy = CLoVE(k=2, first_round="evaluate", probes=1)
    clients = FakeClients(targets)
    result = strategy.start(clients.grid(), models(5.1, 5.1, 0.0), num_rounds=1)
    found = strategy.assignment
    assert found["0"] == found["1"] != found["2"] == found["3"]
    # Halfway to 0 and 0.2 from 5.1, and to 10 and 10.2: the two models alone, and the probe as it was.
    assert sorted(thetas(result.arrays)) == pytest.approx([2.6, 7.6])
    assert thetas(strategy.state.layers["probes"].models.record) == [0.0]
    assert clients.asked(kinds.LOSSES) == [0, 1, 2, 3]


def test_no_cluster_is_matched_to_a_probe_and_new_clients_are_measured_on_it() -> None:
    # The probes are everybody's best models.
    late = FakeClients([0.0, 0.2, 10.0, 10.2], faults={(kinds.LOSSES, r, 3): lost for r in range(1, 4)})
    strategy = CLoVE(k=2, first_round="evaluate", probes=2)
    result = strategy.start(late.grid(), models(4.0, 6.0, 0.1, 10.1), num_rounds=5)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert len(thetas(result.arrays)) == 2
    frozen = strategy.frozen_clusters()
    assert frozen is not None
    assert frozen.centroids.shape == (2, 4)
    # Of clients 0 and 1 on the probes 0.1 and 10.1: 0.01 and 0.01, 102.01 and 98.01.
    np.testing.assert_allclose(frozen.centroids[0, 2:], [0.01, 100.01], rtol=1e-4)
    assert late.asked(kinds.LOSSES, 4) == [3]


@pytest.mark.parametrize("kind", [kinds.LOSSES, kinds.TRAIN_SELECT])
@pytest.mark.parametrize("server_round", [1, 7])
def test_losses_are_taken_on_a_batch_that_is_drawn_in_each_round(ask: Ask, kind: str, server_round: int) -> None:
    settings = {kinds.LOSS_DATA: "train", kinds.LOSS_BATCH: 5, kinds.SERVER_ROUND: server_round}
    content = ask(kind, BANK, **settings)
    read = (
        codec.read(Losses, content, K=3)
        if kind == kinds.LOSSES
        else codec.read(SelectedUpdate, content, layout=LAYOUT, K=3)
    )
    rows = generator(0, server_round, Purpose.LOSS_BATCH, 2).choice(len(TASK.client(2).x_train), 5, replace=False)
    expected = [loss_and_gradient(k, np.sort(rows))[0] for k in range(3)]
    np.testing.assert_allclose(read.losses, expected, rtol=1e-5)
    # Training takes all samples.
    assert read.num_examples == len(TASK.client(2).x_train)


@pytest.mark.parametrize("batch", [-5, 2.5])
def test_a_batch_that_is_no_count_is_refused_where_losses_are_taken(ask: Ask, batch: object) -> None:
    with pytest.raises(AssertionError, match="loss-batch="):
        ask(kinds.LOSSES, BANK, **{kinds.LOSS_BATCH: batch})
    ask(kinds.TRAIN, bank.model(BANK, 1), **{kinds.LOSS_BATCH: batch})
