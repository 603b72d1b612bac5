"""Local training's own optimiser: PyTorch's steps to the bit, without PyTorch's compiler."""

import subprocess
import sys

import pytest
import torch
from task.optimizer import LocalOptimizer


def trained(make, dtype=torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3)).to(dtype)
    unused = torch.nn.Parameter(torch.ones(2, dtype=dtype))
    optimizer = make([*module.parameters(), unused])
    x, y = torch.randn(32, 5, dtype=dtype), torch.randint(0, 3, (32,))
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in [*module.parameters(), unused]])


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_steps_equal_pytorchs_to_the_bit(decay, dtype):
    ours = trained(lambda p: LocalOptimizer(p, "adam", 0.01, weight_decay=decay), dtype)
    theirs = trained(lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=decay, fused=True), dtype)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_sgd_steps_equal_pytorchs_to_the_bit(momentum, decay):
    ours = trained(lambda p: LocalOptimizer(p, "sgd", 0.1, momentum, decay))
    theirs = trained(lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum, weight_decay=decay, fused=True))
    assert torch.equal(ours, theirs)


def test_a_step_without_any_gradient_changes_nothing():
    parameter = torch.nn.Parameter(torch.ones(2))
    LocalOptimizer([parameter], "adam", 0.1).step()
    assert torch.equal(parameter.detach(), torch.ones(2))


def test_training_does_not_import_pytorchs_compiler():
    # It costs a process 1.2 s, and a deployed client is a new process for every message.
    code = """
import sys, numpy as np, torch
from task.training import TrainSettings, local_update
module, x, y = torch.nn.Linear(3, 2), torch.zeros(8, 3), torch.zeros(8, dtype=torch.int64)
for optimizer, momentum in (("adam", 0.0), ("sgd", 0.9)):
    settings = TrainSettings(0.1, 1, 4, optimizer, momentum)
    local_update(module, x, y, "cross_entropy", settings, np.random.default_rng(0))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
