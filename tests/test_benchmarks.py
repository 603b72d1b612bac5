"""Every benchmark can be started: no test runs one, and a function that moves would be missed by nobody."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.discovery_federations import CLASSES, HIDDEN, Cell, Recipe, alike, federation, initial, train
from florets.task.registry import resolve
from florets.task.training.folds import fold_changes, on_folds
from florets.task.training.settings import Training

BENCHMARKS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_all_clients_at_once_learn_what_each_does() -> None:
    clients, _ = federation(Cell(alike(3), 12), np.random.default_rng(0))
    module = resolve("model", "mlp")((1, 8, 8), CLASSES, hidden=[HIDDEN])
    start, state, begin = torch.from_numpy(initial(0)), {}, 0
    for name, value in module.state_dict().items():
        state[name] = start[begin : begin + value.numel()].view(value.shape)
        begin += value.numel()
    folds = [np.arange(6), np.arange(6, 12)]
    expected = [
        fold_changes(
            module,
            state,
            torch.from_numpy(x.astype(np.float32)).view(-1, 1, 8, 8),
            torch.from_numpy(y),
            "cross_entropy",
            folds,
            on_folds(Training(), 3),
            np.random.default_rng(0),
        )
        for x, y in clients
    ]
    x = torch.from_numpy(np.stack([x for x, _ in clients]).astype(np.float32)).view(6, 6, -1)
    y = torch.from_numpy(np.stack([y for _, y in clients])).view(6, 6)
    changes = train(initial(0), x, y, 3, Recipe(), np.random.default_rng(0))
    # Adam divides gradients that are all rounding by themselves: a few pixels are 0 in every image of a fold.
    assert np.abs(changes.reshape(3, 2, -1) - np.stack(expected)).max() < 2e-5
