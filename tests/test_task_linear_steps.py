"""Linear models in NumPy: the results of the torch path, to rounding."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.task.models.mlp import linear
from florets.task.training.linear import (
    LinearModels,
    LinearNames,
    flat,
    linear_losses,
    linear_names,
    linear_test,
    linear_update,
)
from florets.task.training.loop import train
from florets.task.training.losses import evaluate, evaluated, loss_vector
from florets.task.training.modules import torch_random
from florets.task.training.objective import PLAIN, Objective, Proximal
from florets.task.training.settings import Training

LINE = LinearNames("w", None)
LOSSES = ["squared_error", "half_squared_error", "cross_entropy"]


def example(loss, bias, n=7):
    outputs = 4 if loss == "cross_entropy" else 1
    with torch_random(np.random.default_rng(3)):
        modules = [linear((1, 2, 3), outputs, bias=bias) for _ in range(3)]
        x = torch.randn(n, 1, 2, 3)
        y = torch.randint(outputs, (n,)) if outputs > 1 else torch.randn(n)
    names = linear_names(modules[0], loss)
    states = [{name: value.numpy() for name, value in module.state_dict().items()} for module in modules]
    return modules, x, y, names, LinearModels.of(states, names)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_test_results_are_those_of_torch(loss, bias):
    modules, x, y, _, models = example(loss, bias)
    expected = loss_vector(linear((1, 2, 3), models.weight.shape[1], bias=bias), map(state, modules), x, y, loss)
    np.testing.assert_allclose(linear_losses(models, *flat(x, y), loss), expected, rtol=1e-6)
    mean, accuracy = evaluate(modules[0], x, y, loss)
    found = linear_test(models, *flat(x, y), loss)
    assert (found.loss, found.accuracy) == (pytest.approx(mean, rel=1e-6), accuracy)
    assert found.scores.values == pytest.approx(evaluated(modules[0], x, y, loss).scores.values, rel=1e-4)


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_full_batch_steps_are_those_of_torch(loss, bias, mu):
    modules, x, y, names, _ = example(loss, bias)
    settings = Training(0.1, 5, 7, "sgd")
    objective = Objective((Proximal(mu),)) if mu else PLAIN
    start = {name: value.numpy().copy() for name, value in state(modules[1]).items()}
    before = start[names.weight].copy()
    arrays, mean = linear_update(names, start, *flat(x, y), loss, settings, mu)
    expected = train(modules[1], x, y, loss, settings, np.random.default_rng(0), objective)
    assert len(arrays) == 1 + bias
    for name, value in state(modules[1]).items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-5, atol=1e-7)
        assert arrays[name].dtype == np.float32
    assert mean == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(start[names.weight], before)


def test_one_step_by_hand():
    """theta = 1, x = 2, y = 5: half the squared error is 4.5, its slope (2 - 5) 2 = -6."""
    models = LinearModels(np.ones((1, 1, 1), np.float32), None)
    x, y = np.full((1, 1), 2, np.float32), np.full(1, 5, np.float32)
    arrays, mean = linear_update(
        LINE, {"w": models.weight[0]}, x, y, "half_squared_error", Training(0.1, 1, 1, "sgd")
    )
    assert (arrays["w"].item(), len(arrays), mean) == (pytest.approx(1.6), 1, 4.5)


def test_a_model_that_diverges_gives_no_warning():
    models = LinearModels(np.full((1, 1, 1), 3e38, np.float32), None)
    x, y = np.full((2, 1), 10, np.float32), np.zeros(2, np.float32)
    assert np.isinf(linear_losses(models, x, y, "squared_error")).all()
    arrays, _ = linear_update(LINE, {"w": models.weight[0]}, x, y, "squared_error", Training(1.0, 3, 2, "sgd"))
    assert not np.isfinite(arrays["w"]).any()


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(2, 1),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 1).double()),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 1).requires_grad_(False)),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))),
    ],
)
def test_other_models_than_plain_linear_ones_take_the_torch_path(module):
    assert linear_names(module, "squared_error") is None


def state(module):
    return module.state_dict()
