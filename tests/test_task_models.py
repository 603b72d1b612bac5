"""Models: published sizes, shapes, the fast pooling's bits, and what is checked of a model before any training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from florets.task.layers import body_and_head
from florets.task.models.autoencoders import autoencoder, conv_autoencoder, csi_autoencoder
from florets.task.models.cnn import cifar_cnn, cnn, pool_and_relu, resnet18, text_cnn
from florets.task.models.mlp import linear, mlp
from florets.task.task import Task, initial_models
from florets.task.training.model_check import check_model


def num_parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("size", [(24, 24), (7, 9)])
def test_both_ways_of_pooling_give_the_same_bits(size):
    x = torch.randn(4, 6, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        fast = pool_and_relu(x)
    assert torch.equal(fast, pool_and_relu(x))
    assert torch.equal(fast, nn.functional.max_pool2d(torch.relu(x), 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cnn((1, 8, 8), 10), r"too small for model cnn: .* kernel=3 padding=1"),
        (lambda: cnn((20,), 1), r"needs images .* one is \(20,\)"),
    ],
)
def test_models_that_do_not_fit_are_refused_with_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_initial_models_differ_and_do_not_depend_on_their_number():
    few = initial_models(lambda: mlp((4,), 2), 2, "different", 3)
    many = initial_models(lambda: mlp((4,), 2), 4, "different", 3)
    for a, b in zip(few, many, strict=False):
        assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not np.array_equal(many[0]["1.weight"], many[1]["1.weight"])
    other_seed = initial_models(lambda: mlp((4,), 2), 2, "different", 4)
    assert not np.array_equal(few[0]["1.weight"], other_seed[0]["1.weight"])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: cnn((1, 28, 28), 10), 5_142),
        (lambda: cnn((1, 28, 28), 62), 18_506),
        (lambda: autoencoder((1, 28, 28), 10), 2_000_964),
        (lambda: linear((1, 8, 8), 10, bias=True), 650),
        (lambda: mlp((1, 28, 28), 10, [200]), 784 * 200 + 200 + 2000 + 10),
        (lambda: cifar_cnn((3, 32, 32), 10), 4_181_002),
        (lambda: conv_autoencoder((3, 32, 32), 10), 712_835),
        (lambda: mlp((5_000,), 2, [1000, 500, 100]), 5_551_802),
        (lambda: text_cnn((200,), 6, tokens=32_000), 3_322_106),
        (lambda: resnet18((3, 32, 32), 10), 11_173_962),
        (lambda: resnet18((3, 32, 32), 10, large_images=True), 11_181_642),
    ],
)
def test_networks_have_the_published_number_of_parameters(make, expected):
    assert num_parameters(make()) == expected


SMALL = [
    (lambda: cnn((3, 31, 33), 5, channels=[4]), (3, 31, 33), 5),
    (lambda: autoencoder((1, 8, 8), 10), (1, 8, 8), 64),
    (lambda: mlp((2, 3), 4), (2, 3), 4),
    (lambda: cifar_cnn((3, 8, 9), 5, channels=[4, 6], hidden=[7]), (3, 8, 9), 5),
    (lambda: conv_autoencoder((3, 8, 4), 0, channels=[4, 6], code=5), (3, 8, 4), 96),
    (lambda: csi_autoencoder((2, 4, 6), 0, code=5), (2, 4, 6), 48),
    (lambda: text_cnn((9,), 3, tokens=7, embedding=4, filters=2), (9,), 3),
    (lambda: resnet18((1, 8, 8), 3), (1, 8, 8), 3),
]


@pytest.mark.parametrize(("make", "shape", "width"), SMALL)
def test_networks_give_outputs_of_the_right_shape_and_all_their_layers_learn(make, shape, width):
    module = make()
    x = torch.randint(1, 7, (3, *shape)).float()
    outputs = module(x)
    assert outputs.shape == (3, width)
    outputs.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    module.eval()
    with torch.inference_mode():
        assert torch.equal(module(x), module(x))
    assert body_and_head(module)[0]


X, Y = torch.randn(2, 4), torch.tensor([0, 2])


class Model(nn.Module):
    """A linear model whose forward a test gives."""

    def __init__(self, forward: Callable[..., Any], change: Callable[[nn.Module], Any] = lambda module: None) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)
        self._own = forward
        change(self)

    def forward(self, *given: torch.Tensor) -> Any:
        return self._own(self, *given)


def plain(model: Any, x: torch.Tensor) -> Any:
    return model.out(x)


def in_place(model: Any, x: torch.Tensor) -> Any:
    """Change what the gradient of a sigmoid needs."""
    outputs = torch.sigmoid(model.out(x))
    outputs += 1
    return outputs


MUST = r"for 3 classes its forward must return one tensor of shape \(n, 3\)"


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: (m.out(x), x), MUST + ".* but returned a tuple"),
        (lambda m, x, z: m.out(x), MUST + r" for one tensor of inputs \(2, 4\), but raised TypeError: .*'z'"),
        (lambda m, x: m.out(x)[:, :2], MUST + r".* but returned one of shape \(2, 2\)"),
        (lambda m, x: m.out(x).bfloat16(), MUST + r".* but returned one of shape \(2, 3\), torch.bfloat16"),
        (lambda m, x: m.out(x).detach(), "does not depend on a trained parameter"),
        (lambda m, x: m.out(x) * np.random.rand(), "global generator of NumPy"),  # noqa: NPY002 - it is refused
        (in_place, "changes in place what the gradient needs"),
    ],
)
def test_what_forward_returns_is_refused_with_what_it_must_return(forward: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(Model(forward), X, Y, "cross_entropy", 3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.bfloat16(), r"its out.weight has the type torch.bfloat16, .*build it with .float\(\)"),
        (lambda m: m.to("meta"), "its out.weight is on meta: build it on the CPU"),
        (lambda m: m.requires_grad_(False), "all of its parameters are frozen"),
    ],
)
def test_parameters_are_looked_at(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(Model(plain, change), X, Y, "cross_entropy", 3, 0)


def lazy(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_outputs))


def lstm(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build a sequence whose first layer returns a tuple."""
    return nn.Sequential(nn.Flatten(), nn.LSTM(64, 8), nn.Linear(8, num_outputs))


def test_a_model_that_does_not_fit_is_named(digits: Callable[..., Task]) -> None:
    with pytest.raises(ValueError, match=r"lazy' has lazy layers: give them their sizes"):
        digits(f"{__name__}:lazy").check()
    with pytest.raises(ValueError, match=r"lstm' .* does not fit data 'digits'"):
        digits(f"{__name__}:lstm").check()


@pytest.fixture
def digits() -> Callable[..., Task]:
    from florets.task.spec import TaskSpec

    def made(model: str) -> Task:
        return Task(TaskSpec("digits", "rotation", model, "cross_entropy", 20, 4, 0, ""))

    return made
