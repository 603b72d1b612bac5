"""Clients' work on a device that is not the CPU: a fake one computes, refuses mixed devices, and counts transfers."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from torch import Tensor, nn

from florets.task.models.autoencoders import autoencoder
from florets.task.models.cnn import cnn
from florets.task.models.mlp import linear, mlp
from florets.task.training import vectorised as sizes
from florets.task.training.networks import network_of
from florets.task.training.settings import Training
from florets.task.training.vectorised import Share, joined_losses, joined_tests, stacked_update
from tests.fake_device import DEVICE, fake_device
from tests.test_batching import clients

IMAGE = (2, 6, 5)
MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "perceptron": (lambda: mlp(IMAGE, 3, [5]), "cross_entropy"),
    "no first layer": (lambda: nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(60, 3)), "cross_entropy"),
    "linear": (lambda: linear(IMAGE, 1, bias=True), "half_squared_error"),
    "autoencoder": (lambda: autoencoder(IMAGE, 0), "reconstruction"),
    "convolutions": (lambda: cnn(IMAGE, 3, [3, 4], kernel=3, padding=1), "cross_entropy"),
}
kinds_of_models = pytest.mark.parametrize(("make", "loss"), MODELS.values(), ids=MODELS)
State = dict[str, Tensor]


@pytest.fixture(autouse=True)
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the kernels of a GPU: all parameters' steps in one call, their counts beside them."""
    monkeypatch.setattr("florets.task.training.loop._fused", lambda parameters: True)


def made(make: Callable[[], nn.Module], loss: str) -> tuple[nn.Module, State, list[tuple[Tensor, Tensor]]]:
    module = make()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return module, state, clients(IMAGE, loss, 3)


def there(state: State) -> State:
    return {name: value.to(DEVICE) for name, value in state.items()}


@kinds_of_models
@pytest.mark.parametrize(
    "settings",
    [Training(0.01, 1.5, 8), Training(0.05, 2, 100, "sgd", momentum=0.9, weight_decay=0.01)],
    ids=["adam", "sgd"],
)
def test_stacks_are_trained_there_with_one_transfer(
    make: Callable[[], nn.Module], loss: str, settings: Training
) -> None:
    module, start, parts = made(make, loss)
    network = network_of(module)
    assert network is not None

    def shares(state: State, parts: Sequence[tuple[Tensor, Tensor]]) -> list[Share]:
        return [Share(state, x, y, lambda i=i: np.random.default_rng(i)) for i, (x, y) in enumerate(parts)]

    here = stacked_update(network, shares(start, parts), loss, settings)
    with fake_device() as fetched:
        moved = [(x.to(DEVICE), y.to(DEVICE)) for x, y in parts]
        found = stacked_update(network, shares(there(start), moved), loss, settings)
        assert fetched == ["copy"]
    for one, other in zip(found, here, strict=True):
        assert one.passes == other.passes
        assert one.mean == pytest.approx(other.mean, rel=1e-5)
        for name, values in other.arrays.items():
            np.testing.assert_allclose(one.arrays[name], values, rtol=0, atol=1e-5)


@kinds_of_models
def test_losses_and_tests_are_computed_there_with_one_transfer_each(make: Callable[[], nn.Module], loss: str) -> None:
    module, start, parts = made(make, loss)
    states = [{name: value + k / 7 for name, value in start.items()} for k in range(3)]
    losses, tests = joined_losses(module, states, parts, loss), joined_tests(module, states[1], parts, loss)
    with fake_device() as fetched:
        moved, module = [(x.to(DEVICE), y.to(DEVICE)) for x, y in parts], module.to(DEVICE)
        found = joined_losses(module, [there(state) for state in states], moved, loss)
        assert fetched == ["copy"]
        tested = joined_tests(module, there(states[1]), moved, loss)
        assert fetched == ["copy"] * 2
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for one, other in zip(tested, tests, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.accuracy == other.accuracy
        assert one.scores == pytest.approx(other.scores, rel=1e-5)


@kinds_of_models
def test_work_there_in_parts_comes_to_the_same(
    make: Callable[[], nn.Module], loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, start, parts = made(make, loss)
    whole, tests = joined_losses(module, [start], parts, loss), joined_tests(module, start, parts, loss)
    # Seven samples a pass.
    monkeypatch.setattr(sizes, "DEVICE_MEMORY", 7 * 16 * sizes._values(module, IMAGE))
    with fake_device():
        moved, module = [(x.to(DEVICE), y.to(DEVICE)) for x, y in parts], module.to(DEVICE)
        np.testing.assert_allclose(joined_losses(module, [there(start)], moved, loss), whole, rtol=1e-5)
        for one, other in zip(joined_tests(module, there(start), moved, loss), tests, strict=True):
            assert one.loss == pytest.approx(other.loss, rel=1e-5)
