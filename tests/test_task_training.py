"""Local training and gradients: against plain PyTorch, by hand, and repeatable to the bit."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from florets.task.models import cnn, linear, mlp
from florets.task.training.loop import gradient, train
from florets.task.training.losses import mean_loss
from florets.task.training.modules import torch_random
from florets.task.training.objective import Objective, Proximal
from florets.task.training.settings import Training

SGD = Training(learning_rate=0.1, local_epochs=1, batch_size=4, optimizer="sgd")


@pytest.fixture(autouse=True)
def seeded():
    with torch_random(np.random.default_rng(0)):
        yield


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def samples():
    draws = rng(3)
    return torch.from_numpy(draws.random((10, 6), dtype=np.float32)), torch.from_numpy(draws.integers(3, size=10))


OPTIM = torch.optim
BETAS = {"betas": [0.8, 0.99], "amsgrad": True}


@pytest.mark.parametrize(
    ("training", "theirs"),
    [
        (SGD, lambda p: OPTIM.SGD(p, 0.1)),
        (Training(0.1, 3, 4, "sgd", 0.9, 0.01), lambda p: OPTIM.SGD(p, 0.1, 0.9, weight_decay=0.01)),
        (
            Training(0.1, 3, 4, "sgd", 0.9, optimizer_options={"nesterov": True}, clip_norm=0.2),
            lambda p: OPTIM.SGD(p, 0.1, 0.9, nesterov=True),
        ),
        (Training(0.01, 2, 4, "adam"), lambda p: OPTIM.Adam(p, 0.01)),
        (Training(0.01, 2, 100, "adam", weight_decay=0.1), lambda p: OPTIM.Adam(p, 0.01, weight_decay=0.1)),
        (
            Training(0.01, 3, 4, "adamw", weight_decay=0.1, optimizer_options=BETAS),
            lambda p: OPTIM.AdamW(p, 0.01, (0.8, 0.99), amsgrad=True, weight_decay=0.1),
        ),
        (Training(0.01, 3, 4, "rmsprop", 0.9), lambda p: OPTIM.RMSprop(p, 0.01, momentum=0.9)),
    ],
    ids=["sgd", "momentum", "nesterov, clipped", "adam", "decay", "adamw", "rmsprop"],
)
def test_training_is_a_plain_loop_of_pytorchs(samples, training, theirs):
    x, y = samples
    module = mlp((6,), 3, [5])
    plain = copy.deepcopy(module)
    optimizer, draws = theirs(plain.parameters()), rng(1)
    draws.integers(2**63 - 1)  # what seeds dropout
    for _ in range(int(training.local_epochs)):
        seen = []
        for rows in torch.from_numpy(draws.permutation(10)).split(training.batch_size):
            optimizer.zero_grad()
            losses = F.cross_entropy(plain(x[rows]), y[rows], reduction="none")
            seen += losses.tolist()
            losses.mean().backward()
            if training.clip_norm is not None:
                norm = sum(float(p.grad.square().sum()) for p in plain.parameters()) ** 0.5
                for p in plain.parameters():
                    p.grad *= min(1.0, training.clip_norm / norm)
            optimizer.step()
    loss = train(module, x, y, "cross_entropy", training, rng(1))
    assert loss == pytest.approx(np.mean(seen), rel=1e-5)
    for ours, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


def test_the_same_generator_gives_the_same_bits_and_leaves_no_trace(samples):
    x, y = samples
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    other = copy.deepcopy(module)
    before = torch.random.get_rng_state()
    losses = [train(m, x, y, "cross_entropy", Training(0.01, 2, 3), rng(5)) for m in (module, other)]
    assert losses[0] == losses[1]
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_step_of_the_proximal_term_by_hand():
    # One sample, x = 1, y = 0: the data gradient at theta is 2 theta; the proximal one is mu (theta - theta_start).
    module = linear((1,), 1)
    with torch.no_grad():
        module[1].weight.fill_(1.0)
    x, y = torch.ones(1, 1), torch.zeros(1)
    settings = Training(0.1, 2, 1, "sgd")
    loss = train(module, x, y, "squared_error", settings, rng(), Objective((Proximal(0.5),)))
    first = 1 - 0.1 * 2
    second = first - 0.1 * (2 * first + 0.5 * (first - 1))
    assert module[1].weight.item() == pytest.approx(second, rel=1e-6)
    assert loss == pytest.approx(first**2, rel=1e-6)


def test_the_full_gradient_is_that_of_the_mean_loss_whatever_the_chunk():
    draws = rng(2)
    x = torch.from_numpy(draws.random((11, 1, 12, 12), dtype=np.float32))
    y = torch.from_numpy(draws.integers(3, size=11))
    module = cnn((1, 12, 12), 3, kernel=3)
    F.cross_entropy(module(x), y).backward()
    expected = {name: p.grad.numpy().copy() for name, p in module.named_parameters()}
    for chunk in (4, 500):
        found, mean = gradient(module, x, y, "cross_entropy", None, rng(), chunk=chunk)
        assert mean == pytest.approx(mean_loss(module, x, y, "cross_entropy"), rel=1e-6)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for p in module.parameters())


def test_a_stochastic_gradient_is_that_of_drawn_samples(samples):
    x, y = samples
    module = mlp((6,), 3)
    found, _ = gradient(module, x, y, "cross_entropy", 4, rng(7))
    drawn = torch.from_numpy(rng(7).choice(10, size=4, replace=False))
    expected, _ = gradient(module, x[drawn], y[drawn], "cross_entropy", None, rng())
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    whole, _ = gradient(module, x, y, "cross_entropy", 10, rng(7))
    np.testing.assert_array_equal(
        whole["1.weight"], gradient(module, x, y, "cross_entropy", None, rng())[0]["1.weight"]
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", float("nan")),
        ("local_epochs", 0),
        ("optimizer", "lbfgs"),
        ("local_steps", -1),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Training().changed(**{name: value})
    assert Training(local_steps=5).changed(local_epochs=2, local_steps=0) == Training(local_epochs=2)


def test_no_samples_and_no_batch_are_refused(samples):
    x, y = samples
    with pytest.raises(ValueError, match="training on no samples"):
        train(mlp((6,), 3), x[:0], y[:0], "cross_entropy", SGD, rng())
    with pytest.raises(ValueError, match="gradient over no samples"):
        gradient(mlp((6,), 3), x[:0], y[:0], "cross_entropy", None, rng())
    with pytest.raises(ValueError, match="gradient_batch=0"):
        gradient(mlp((6,), 3), x, y, "cross_entropy", 0, rng())


def test_batch_normalisation_trains_where_one_sample_is_left_over() -> None:
    x, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    settings = Training(learning_rate=0.1, local_epochs=1, batch_size=2)
    train(module, x, y, "cross_entropy", settings, np.random.default_rng(0))
    # Two batches, of 2 and 3 samples.
    assert int(module.state_dict()["0.num_batches_tracked"]) == 2
