"""Steps of SGD and Adam: bit for bit those of PyTorch's own optimisers."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.task.training.modules import torch_random
from florets.task.training.optimizers import Adam, Sgd


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_is_torchs(momentum, weight_decay):
    ours, theirs = pair()
    check(
        ours,
        theirs,
        Sgd(list(ours.parameters()), 0.1, momentum, weight_decay),
        torch.optim.SGD(theirs.parameters(), 0.1, momentum=momentum, weight_decay=weight_decay, fused=True),
    )


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_is_torchs(weight_decay):
    ours, theirs = pair()
    check(
        ours,
        theirs,
        Adam(list(ours.parameters()), 0.1, weight_decay),
        torch.optim.Adam(theirs.parameters(), 0.1, weight_decay=weight_decay, fused=True),
    )


@pytest.mark.parametrize("make", [lambda p: Sgd(p, 0.1, 0.9, 0.1), lambda p: Adam(p, 0.1, 0.1)])
def test_a_parameter_without_gradient_stays_as_it_is(make):
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = make([used, unused])
    used.square().sum().backward()
    optimizer.step()
    assert (used != 1).all()
    assert (unused == 1).all()


def pair():
    models = []
    for _ in range(2):
        with torch_random(np.random.default_rng(0)):
            models.append(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    return models


def check(ours, theirs, our_optimizer, their_optimizer):
    for seed in range(4):
        for model, optimizer in ((ours, our_optimizer), (theirs, their_optimizer)):
            model.zero_grad()
            x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
            model(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)
