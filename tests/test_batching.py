"""The work of several clients at once: the same steps from the same draws, and nobody pays for another's fault."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from florets.client_app import batching
from florets.client_app.app import app
from florets.client_app.batching import in_blocks
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.report import RoundReport
from florets.strategies.core import FloatArray
from florets.task.models.autoencoders import autoencoder
from florets.task.models.cnn import cnn
from florets.task.models.mlp import mlp
from florets.task.training import full_steps, vectorised
from florets.task.training.loop import train
from florets.task.training.losses import counted, evaluated, loss_vector
from florets.task.training.networks import Dense, Mapped, network_of
from florets.task.training.settings import Training
from florets.task.wire import bank, kinds
from tests import own_functions

SIZES = (7, 45, 1, 20, 20)
SMALL = ("num_clients=12", "task.model_options.hidden=[16]", "quiet=true", "loss_matrix=false", "pictures=false")


def grid(size: int, num_clients: int = 12) -> LocalGrid:
    made = LocalGrid(app, num_clients, None, in_blocks)
    made.block_size = size
    return made


def run(size: int, *keys: str) -> tuple[FloatArray, list[RoundReport]]:
    given = {key.partition("=")[0] for key in keys}
    own_model = bool(given & {"task.model", "task.model_options"})
    small = [key for key in SMALL if key.partition("=")[0] not in given and not (own_model and "hidden" in key)]
    config = compose([*small, *keys])
    task = build_task(config)
    strategy = build_strategy(config, task)
    reports: list[RoundReport] = []
    strategy.start(
        grid(size, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    return bank.unpack(strategy.context.models.record)[0], reports


@pytest.mark.parametrize(
    "keys",
    [
        ("strategy=clove", "loss_data=held_out", "task.validation_fraction=0.2", "num_rounds=2", "train=sgd"),
        ("strategy=ifca", "task.model=linear", "task.model_options={bias: true}", "num_rounds=2", "train=sgd"),
        (
            "strategy=ifca",
            "loss_batch=9",
            "train=sgd",
            "train.local_steps=10",
            "train.batch_size=100",
            "num_rounds=3",
        ),
    ],
    ids=lambda keys: "-".join(keys[:2]),
)
def test_a_run_in_blocks_assigns_alike_and_ends_with_the_same_models(
    keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = computed_together(monkeypatch)
    alone, single = run(1, *keys)
    assert not sizes
    together, blocks = run(5, *keys)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    assert sizes, "nothing was computed together"
    for one, other in zip(single, blocks, strict=True):
        assert one.assignment == other.assignment
        assert (one.work.gradients, one.work.losses) == (other.work.gradients, other.work.losses)
        assert other.work.seconds > 0
        for key, test in one.evaluations.items():
            assert other.evaluations[key].loss == pytest.approx(test.loss, abs=1e-4)


@pytest.mark.parametrize(
    "keys",
    [
        ("task.model=tests.own_functions:net", "train=sgd"),
        ("task.model_options={hidden: [8], batch_norm: true}", "task.data=digits"),
        ("strategy=fedavg", "averaging=gradients"),
        ("strategy=fedprox", "strategy.proximal_mu=0.1"),
    ],
    ids="-".join,
)
def test_what_cannot_be_computed_together_has_equal_bits(keys: tuple[str, ...]) -> None:
    alone, together = (run(size, *keys, "num_rounds=1", "eval_every=2")[0] for size in (1, 5))
    assert (together == alone).all()


def clients(shape: tuple[int, ...], loss: str, outputs: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(3)
    parts = []
    for size in SIZES:
        y = torch.randint(outputs, (size,), generator=draw)
        parts.append((torch.rand(size, *shape, generator=draw), y if loss == "cross_entropy" else y.float()))
    return parts


def as_alone(
    found: Sequence[vectorised.Trained],
    module: torch.nn.Module,
    start: dict[str, torch.Tensor],
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: str,
    settings: Training,
) -> None:
    """Assert that each client's training is the one that it has alone."""
    for number, ((x, y), trained) in enumerate(zip(parts, found, strict=True)):
        module.load_state_dict(start)
        with counted() as effort:
            mean = train(module, x, y, loss, settings, np.random.default_rng(number))
        assert trained.passes == effort.gradients
        assert trained.mean == pytest.approx(mean, rel=1e-5)
        assert list(trained.arrays) == list(module.state_dict())
        for name, value in module.state_dict().items():
            np.testing.assert_allclose(trained.arrays[name], value.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "loss", "hidden"),
    [
        (Training(0.01, 1.5, 8), "cross_entropy", [6]),
        (Training(0.05, 2, 100, "sgd", momentum=0.9, weight_decay=0.01), "cross_entropy", []),
        (Training(0.05, 1, 6, "adam", weight_decay=0.01, local_steps=5), "half_squared_error", [4, 3]),
        (Training(0.1, 0.3, 4, "sgd"), "reconstruction", []),
        (Training(0.01, 1.5, 8), "cross_entropy", "convolutions"),
    ],
    ids=["adam", "sgd", "steps", "autoencoder", "convolutions"],
)
def test_stacked_training_takes_the_steps_of_single_trainings(
    settings: Training, loss: str, hidden: list[int] | str
) -> None:
    outputs, shape = (1 if loss == "half_squared_error" else 3), (2, 4)
    module: torch.nn.Module
    if hidden == "convolutions":
        shape = (2, 6, 5)
        module = cnn(shape, outputs, [3, 4], kernel=3, padding=1)
    else:
        module = autoencoder(shape, 0) if loss == "reconstruction" else mlp(shape, outputs, hidden)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    parts = clients(shape, loss, outputs)
    network = network_of(module)
    assert network is not None
    shares = [vectorised.Share(start, x, y, lambda i=i: np.random.default_rng(i)) for i, (x, y) in enumerate(parts)]
    found = vectorised.stacked_update(network, shares, loss, settings)
    as_alone(found, module, start, parts, loss, settings)


@pytest.mark.parametrize("loss", ["cross_entropy", "reconstruction"])
def test_full_steps_are_those_of_single_trainings(loss: str) -> None:
    module = mlp((2, 30), 3, [12, 5]) if loss == "cross_entropy" else autoencoder((2, 30), 0)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    parts, network = clients((2, 30), loss, 3), network_of(module)
    settings = Training(0.5, 1, 45, "sgd", local_steps=40)
    shares = [vectorised.Share(start, x, y, lambda: pytest.fail("nothing is drawn")) for x, y in parts]
    assert network is not None
    largest = parts[1][0]
    others = ({"batch_size": 44}, {"optimizer": "adam"}, {"momentum": 0.9}, {"local_steps": 1})
    assert not any(full_steps.pays_off(network, largest, replace(settings, **other)) for other in others)
    assert full_steps.pays_off(network, largest, settings)
    found = full_steps.stacked_full_steps(network, shares, loss, settings)
    as_alone(found, module, start, parts, loss, settings)


@pytest.mark.parametrize(
    "module",
    [cnn((2, 6, 5), 3, [3, 4], kernel=3, padding=1), mlp((4,), 3, [5])],
    ids=["convolutions", "dense"],
)
def test_joined_losses_and_tests_are_those_of_each_client(module: torch.nn.Module) -> None:
    convolutions = type(module).__name__ == "ConvNet"
    states = [{name: value + k / 7 for name, value in module.state_dict().items()} for k in range(3)]
    parts = clients((2, 6, 5) if convolutions else (4,), "cross_entropy", 3)
    losses = vectorised.joined_losses(module, states, parts, "cross_entropy")
    tests = vectorised.joined_tests(module, states[1], parts, "cross_entropy")
    for row, test, (x, y) in zip(losses, tests, parts, strict=True):
        np.testing.assert_allclose(row, loss_vector(module, states, x, y, "cross_entropy"), 1e-5, 1e-6)
        module.load_state_dict(states[1])
        alone = evaluated(module, x, y, "cross_entropy")
        assert (test.accuracy, test.scores) == (alone.accuracy, alone.scores)
        assert test.loss == pytest.approx(alone.loss, rel=1e-5, abs=1e-6)


def test_which_modules_are_stacked() -> None:
    assert network_of(cnn((1, 8, 8), 3, [4], kernel=3)) is not None
    replaced = cnn((1, 8, 8), 3, [4], kernel=3)
    replaced.linear = torch.nn.Sequential(replaced.linear)
    assert network_of(replaced) is None
    assert network_of(mlp((4,), 3, [5], batch_norm=True)) is None
    flatten, layer = torch.nn.Flatten(), torch.nn.Linear(4, 4)
    assert network_of(torch.nn.Sequential(flatten, layer, torch.nn.Dropout())) is None
    # One parameter under two names, a frozen one, a hook, a subclass.
    assert network_of(torch.nn.Sequential(flatten, layer, layer)) is None
    frozen = torch.nn.Linear(4, 4)
    frozen.weight.requires_grad_(False)
    assert network_of(torch.nn.Sequential(flatten, frozen)) is None
    hooked = torch.nn.Linear(4, 4)
    hooked.register_forward_hook(lambda *_: None)
    assert network_of(torch.nn.Sequential(flatten, hooked)) is None
    own = type("Own", (torch.nn.Linear,), {})
    assert network_of(torch.nn.Sequential(flatten, own(4, 4))) is None
    assert network_of(torch.nn.Sequential(flatten, layer, torch.nn.Conv1d(4, 4, 1))) is None
    assert network_of(own_functions.net((4,), 3)) is None
    again, relu = torch.nn.Linear(4, 4), torch.nn.ReLU()
    twice = network_of(torch.nn.Sequential(flatten, layer, relu, again, relu, torch.nn.GELU()))
    assert isinstance(twice, Dense)
    assert len(twice.layers) == 5


@pytest.mark.parametrize("is_dense", [True, False], ids=["dense", "mapped"])
def test_users_networks_are_computed_side_by_side(is_dense: bool) -> None:
    first, last, relu = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.ReLU()
    normed = torch.nn.Identity() if is_dense else torch.nn.LayerNorm(4)
    module = torch.nn.Sequential(torch.nn.Sequential(first, relu), normed, last)
    # Layers act on the last dimension, of samples of any shape.
    network, x = network_of(module), torch.randn(1, 3, 2, 4)
    assert isinstance(network, Dense if is_dense else Mapped)
    stacks = {name: value.unsqueeze(0) for name, value in module.state_dict().items()}
    torch.testing.assert_close(network.outputs(stacks, x), module(x[0]).unsqueeze(0))


def computed_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that is told the size of each block from now on that was computed without a fault."""
    sizes: list[int] = []
    computed = batching._computed

    def seen(block: Sequence[Any]) -> Any:
        found = computed(block)
        sizes.append(len(block))
        return found

    monkeypatch.setattr(batching, "_computed", seen)
    return sizes


def test_a_client_that_fails_costs_its_own_reply_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = computed_together(monkeypatch)
    config = compose([*SMALL, "strategy=fedavg"])
    task = build_task(config)
    settings, models = message_settings(config, task), build_models(config, task)
    replies: dict[int, list[Message]] = {}
    for size in (1, 5):
        made = grid(size)
        # A device that is not there fails before a block is made, a label that is not there within it.
        made._contexts[4].node_config[kinds.DEVICE] = "cuda:9"
        contents = []
        for node in made.get_node_ids():
            own = settings.copy()
            own[kinds.SERVER_ROUND], own[kinds.CLIENT_NUMBER] = 1, node
            contents.append((node, own))
        data = session.client(contents[6][1], made._contexts[8], 1)
        label = int(data.y_train[0])
        data.y_train[0] = 99
        try:
            replies[size] = made.send_and_receive([message(node, own, models) for node, own in contents])
        finally:
            data.y_train[0] = label
    for one, other in zip(replies[1], replies[5], strict=True):
        assert one.metadata.src_node_id == other.metadata.src_node_id
        assert one.has_error() == other.has_error() == (one.metadata.src_node_id in (4, 8))
        if other.has_error():
            assert one.error.reason == other.error.reason
    good = [(one, other) for one, other in zip(replies[1], replies[5], strict=True) if one.has_content()]
    sent = [[reply.content[kinds.ARRAYS]["1.weight"].numpy() for reply in pair] for pair in good]
    assert max(np.abs(one - other).max() for one, other in sent) < 1e-6
    # The block in which nobody fails is computed together, and so is what is left of 11.
    assert sizes == [5]


def message(node: int, config: ConfigRecord, models: ArrayRecord) -> Message:
    return Message(RecordDict({kinds.CONFIG: config, kinds.ARRAYS: models}), node, kinds.TRAIN)
