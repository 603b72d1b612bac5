"""Checks of a model before any training: what is wrong is refused with what its forward must return."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from florets.task.task import Task
from florets.task.training.model_check import check_model

X, Y = torch.randn(2, 4), torch.tensor([0, 2])


class Model(nn.Module):
    """A linear model whose forward a test gives."""

    def __init__(self, forward: Callable[..., Any], change: Callable[[nn.Module], Any] = lambda module: None) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)
        self._own = forward
        change(self)

    def forward(self, *given: torch.Tensor) -> Any:
        """Return what the test wants."""
        return self._own(self, *given)


def plain(model: Any, x: torch.Tensor) -> Any:
    """Return logits."""
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
        (lambda m, x: (m.out(x), x), MUST + ".* but returned a tuple of 2 values"),
        (lambda m, x, z: m.out(x), MUST + r" for one tensor of inputs \(n, 4\), but raised TypeError: .*'z'"),
        (lambda m, x: m.out(x)[:, :2], MUST + r".* but returned one of shape \(n, 2\)"),
        (lambda m, x: m.out(x).bfloat16(), MUST + r".* but returned one of shape \(n, 3\) bfloat16"),
        (lambda m, x: m.out(x).detach(), "does not depend on a trained parameter"),
        (lambda m, x: m.out(x) * np.random.rand(), "global generator of NumPy"),  # noqa: NPY002 - it is refused
        (in_place, "changes in place what the gradient needs"),
    ],
)
def test_what_forward_returns_is_refused_with_what_it_must_return(forward: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(lambda: Model(forward), X, Y, "cross_entropy", 3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.bfloat16(), r"its out.weight has the type bfloat16, .*build it with .float\(\)"),
        (lambda m: m.to("meta"), "its out.weight is on meta: build it on the CPU"),
        (lambda m: m.requires_grad_(False), "all of its parameters are frozen"),
    ],
)
def test_parameters_are_looked_at(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(lambda: Model(plain, change), X, Y, "cross_entropy", 3, 0)


def lazy(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build layers that take their sizes from their inputs."""
    return nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(num_outputs))


def lstm(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build a sequence whose first layer returns a tuple."""
    return nn.Sequential(nn.Flatten(), nn.LSTM(64, 8), nn.Linear(8, num_outputs))


def test_lazy_layers_get_their_sizes_and_errors_name_the_model(digits: Callable[..., Task]) -> None:
    task = digits(f"{__name__}:lazy")
    task.check()
    assert {tuple(value.shape) for value in task.build_model().parameters()} >= {(2, 1, 3, 3), (10, 72)}
    with pytest.raises(ValueError, match=r"^model 'test_model_check:lstm' .* does not fit data 'digits'"):
        digits(f"{__name__}:lstm").check()


@pytest.fixture
def digits() -> Callable[..., Task]:
    """Return a function that makes a task of digits with a model."""
    from florets.task.spec import TaskSpec

    def made(model: str) -> Task:
        return Task(TaskSpec("digits", "rotation", model, "cross_entropy", 20, 4, 0, ""))

    return made
