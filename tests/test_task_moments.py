"""Moments, anchor steps and exact FedProx, against autograd, explicit sums over pairs and many small steps."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import florets.strategies.two_phase.client
from florets.strategies.two_phase.client import LocalMoments, sample_moments
from florets.task.models.mlp import linear, mlp
from florets.task.training.linear import exact_proximal
from florets.task.training.loop import train
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.modules import torch_random
from florets.task.training.objective import Objective, Proximal
from florets.task.training.settings import Training

CASES = {
    "half": (partial(linear, (6,), 1), "half_squared_error", None),
    "squared": (partial(linear, (6,), 1, bias=True), "squared_error", None),
    "classes": (partial(linear, (1, 2, 3), 3), "cross_entropy", 3),
    "classes with bias": (partial(linear, (1, 2, 3), 3, bias=True), "cross_entropy", 3),
    "mlp": (partial(mlp, (1, 2, 3), 3), "cross_entropy", 3),
}


def draw(build, classes: int | None, n: int = 5, anchors: int = 2):
    with torch_random(np.random.default_rng(3)):
        module, x = build(), torch.randn(n, 1, 2, 3)
        y = torch.randint(0, classes, (n,)) if classes else torch.randn(n)
    x = x if classes else x.flatten(1)
    size = sum(value.numel() for value in module.state_dict().values())
    estimates = np.random.default_rng(1).standard_normal((anchors, size)).astype(np.float32)
    return module, x, y, estimates


def by_autograd(module: nn.Module, estimate: np.ndarray, x, y, loss: str) -> np.ndarray:
    """One backward pass a sample."""
    state = module.state_dict()
    parts = torch.from_numpy(estimate).split([value.numel() for value in state.values()])
    module.load_state_dict({name: part.view(state[name].shape) for name, part in zip(state, parts, strict=True)})
    module.eval()
    rows = []
    for i in range(len(x)):
        module.zero_grad()
        one, target = x[i : i + 1], y[i : i + 1]
        per_sample_losses(module(one), targets_of(one, target, loss), loss).sum().backward()
        parameters = dict(module.named_parameters())
        rows.append(
            np.concatenate(
                [
                    -parameters[name].grad.flatten().numpy() if name in parameters else np.zeros(value.numel())
                    for name, value in module.state_dict().items()
                ]
            )
        )
    return np.stack(rows)


@pytest.mark.parametrize("case", CASES)
def test_moments_are_negative_gradients_of_single_samples(case: str):
    build, loss, classes = CASES[case]
    module, x, y, estimates = draw(build, classes)
    found = sample_moments(module, estimates, x, y, loss)
    assert found.dtype == np.float32
    for moments, estimate in zip(found, estimates, strict=True):
        assert moments == pytest.approx(by_autograd(module, estimate, x, y, loss), abs=2e-5)


def test_buffers_have_no_moments_and_batch_normalisation_uses_its_running_statistics():
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))

    module, x, y, estimates = draw(build, 3)
    start = 0
    for name, value in module.state_dict().items():
        if "running" in name or "num_batches" in name:
            estimates[:, start : start + value.numel()] = 2.0
        start += value.numel()
    found = sample_moments(module, estimates, x, y, "cross_entropy")
    assert found[0] == pytest.approx(by_autograd(module, estimates[0], x, y, "cross_entropy"), abs=2e-5)
    assert (found[0, :, -1] != 0).any()
    assert (found == 0).all(axis=(0, 1)).sum() >= 9


@pytest.mark.parametrize("block", [2**22, 13])
def test_terms_are_products_with_the_mean_over_pairs(block, monkeypatch):
    # 13 values: one anchor and one or two rows at a time.
    monkeypatch.setattr(florets.strategies.two_phase.client, "LARGEST_BLOCK", block)
    build, loss, classes = CASES["half"]
    module, x, y, estimates = draw(build, classes)
    bases = np.random.default_rng(2).standard_normal((2, 6, 2)).astype(np.float32)
    found = LocalMoments(module, x, y, loss).term(estimates, bases)
    for anchor, moments in enumerate(sample_moments(module, estimates, x, y, loss)):
        pairs = [np.outer(one, other) for i, one in enumerate(moments) for j, other in enumerate(moments) if i != j]
        assert found[anchor] == pytest.approx(np.mean(pairs, axis=0) @ bases[anchor], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("loss", ["half_squared_error", "squared_error"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [3, 40])
def test_exact_fedprox_is_where_many_proximal_steps_end(loss: str, bias: bool, n: int):
    with torch_random(np.random.default_rng(0)):
        x, y, mu = torch.randn(n, 6), torch.randn(n), 1.7
        exact, stepped = linear((6,), 1, bias=bias), linear((6,), 1, bias=bias)
    stepped.load_state_dict(exact.state_dict())
    loss_before = per_sample_losses(exact(x), y, loss).mean().item()
    assert exact_proximal(exact, x, y, loss, mu) == pytest.approx(loss_before, rel=1e-4)
    settings = Training(0.1, 400, n, "sgd")
    train(stepped, x, y, loss, settings, np.random.default_rng(0), Objective((Proximal(mu),)))
    for one, other in zip(exact.parameters(), stepped.parameters(), strict=True):
        assert one.detach().numpy() == pytest.approx(other.detach().numpy(), abs=2e-4)
