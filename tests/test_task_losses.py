"""Losses: against plain loops, by hand, and at the edges."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from florets.task.models import autoencoder, cnn, linear
from florets.task.training.losses import evaluate, loss_vector, mean_loss, per_sample_losses
from florets.task.training.modules import torch_random

LOSSES = ["cross_entropy", "squared_error", "reconstruction"]


@pytest.fixture(autouse=True)
def seeded():
    with torch_random(np.random.default_rng(0)):
        yield


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def naive(module, x, y, loss):
    """Return the mean of the losses of single samples, one forward pass each."""
    module.eval()
    losses = []
    with torch.no_grad():
        for sample, target in zip(x, y, strict=True):
            output = module(sample[None])
            if loss == "cross_entropy":
                losses.append(F.cross_entropy(output, target[None]).item())
            elif loss == "squared_error":
                losses.append((output.item() - target.item()) ** 2)
            else:
                losses.append(F.mse_loss(output, sample.flatten()[None]).item())
    return math.fsum(losses) / len(losses)


@pytest.fixture(params=LOSSES)
def case(request):
    if request.param == "cross_entropy":
        return cnn((1, 12, 12), 3, kernel=3), random(23, 1, 12, 12), torch.arange(23) % 3, request.param
    if request.param == "squared_error":
        return linear((5,), 1), random(23, 5), random(23, seed=1), request.param
    return autoencoder((1, 4, 4), 0), random(23, 1, 4, 4), torch.zeros(23), request.param


@pytest.mark.parametrize("chunk", [1, 7, 500])
def test_the_mean_loss_equals_a_loop_over_samples_whatever_the_chunk(case, chunk):
    module, x, y, loss = case
    assert mean_loss(module, x, y, loss, chunk) == pytest.approx(naive(module, x, y, loss), rel=1e-5)


def test_the_loss_vector_equals_a_loop_over_models(case):
    module, x, y, loss = case
    states = [{name: value * scale for name, value in module.state_dict().items()} for scale in (1.0, 0.5, 2.0)]
    vector = loss_vector(module, (state for state in states), x, y, loss)
    assert vector.dtype == np.float64
    expected = []
    for state in states:
        module.load_state_dict(state)
        expected.append(naive(module, x, y, loss))
    np.testing.assert_allclose(vector, expected, rtol=1e-5)


def test_losses_by_hand():
    x = torch.tensor([[1.0], [2.0]])
    outputs = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    losses = per_sample_losses(outputs, torch.tensor([0, 1]), "cross_entropy")
    np.testing.assert_allclose(losses, [math.log(4), math.log(2)], rtol=1e-6)
    assert per_sample_losses(x, torch.tensor([3.0, 2.5]), "squared_error").tolist() == [4.0, 0.25]
    rebuilt = per_sample_losses(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), "reconstruction")
    assert rebuilt.tolist() == [2.5]


def test_accuracy_is_the_share_of_largest_outputs_and_there_is_none_without_classes():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    loss, accuracy = evaluate(nn.Identity(), x, torch.tensor([0, 1, 1, 1]), "cross_entropy", chunk=3)
    assert accuracy == 0.75
    assert loss == pytest.approx(mean_loss(nn.Identity(), x, torch.tensor([0, 1, 1, 1]), "cross_entropy"))
    assert evaluate(nn.Identity(), x, torch.zeros(4), "reconstruction") == (0.0, None)


def test_losses_are_taken_in_eval_mode():
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2))
    module.train()
    x = random(10, 2)
    first = mean_loss(module, x, x, "reconstruction")
    assert not module.training
    assert int(module[1].num_batches_tracked) == 0
    assert mean_loss(module, x, x, "reconstruction") == first


def test_the_sum_is_taken_in_double_precision():
    x = torch.full((2**14, 1), 1.0001)
    exact = (float(np.float32(1.0001)) - 0) ** 2
    assert mean_loss(nn.Identity(), x, torch.zeros(len(x)), "squared_error") == pytest.approx(exact, rel=1e-7)


def test_no_samples_and_unknown_losses_are_refused():
    with pytest.raises(ValueError, match="over no samples"):
        mean_loss(nn.Identity(), torch.zeros(0, 1), torch.zeros(0), "squared_error")
    with pytest.raises(
        ValueError,
        match=r"task.loss='hinge' is unknown. Known: cross_entropy, squared_error, half_squared_error, recon",
    ):
        per_sample_losses(torch.zeros(1, 1), torch.zeros(1), "hinge")
