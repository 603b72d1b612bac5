"""Time a client's losses and training against the plain way; CPU seconds on one thread, median of the repeats.

Run: ``python benchmarks/bench_losses.py`` (``--repeats 5``). No data files are needed: the inputs are random.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from florets.task.models import cnn, mlp
from florets.task.task import initial_models
from florets.task.training.loop import train
from florets.task.training.losses import evaluate, loss_vector
from florets.task.training.settings import Training

NUM_MODELS, NUM_SAMPLES = 5, 500
SHAPE = (1, 28, 28)


def naive_net() -> nn.Module:
    """Return the published network as one would write it down."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def naive_losses(module: nn.Module, states: list[dict[str, Tensor]], x: Tensor, y: Tensor) -> np.ndarray:
    """Return the loss vector with a loader and one criterion call a sample, as the published code has it."""
    vector = []
    for state in states:
        module.load_state_dict(state)
        module.eval()
        losses: list[float] = []
        with torch.no_grad():
            for x_batch, y_batch in DataLoader(TensorDataset(x, y), batch_size=100):
                outputs = module(x_batch)
                losses += [F.cross_entropy(o[None], t[None]).item() for o, t in zip(outputs, y_batch, strict=True)]
        vector.append(sum(losses) / len(losses))
    return np.array(vector)


def naive_training(module: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train one epoch with a loader and a stock Adam."""
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for x_batch, y_batch in DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(module(x_batch), y_batch).backward()
        optimizer.step()


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((NUM_SAMPLES, *SHAPE), dtype=np.float32))
    y = torch.from_numpy(rng.integers(10, size=NUM_SAMPLES))
    x_ours = x.contiguous(memory_format=torch.channels_last)
    settings = Training(learning_rate=1e-2, local_epochs=1, batch_size=100)

    ours = cnn(SHAPE, 10).to(memory_format=torch.channels_last)
    naive = naive_net()
    bank = initial_models(lambda: cnn(SHAPE, 10), NUM_MODELS, "different", 0)
    states = [{name: torch.from_numpy(value) for name, value in state.items()} for state in bank]
    naive_states = [dict(zip(naive.state_dict(), state.values(), strict=True)) for state in states]

    def our_losses() -> np.ndarray:
        return loss_vector(ours, states, x_ours, y, "cross_entropy")

    difference = np.abs(our_losses() - naive_losses(naive, naive_states, x, y)).max()
    rows = [
        (
            f"{NUM_MODELS} CNN losses of {NUM_SAMPLES} samples",
            cpu_seconds(lambda: naive_losses(naive, naive_states, x, y), max(repeats // 3, 1)),
            cpu_seconds(our_losses, repeats),
        ),
        (
            f"CNN, one epoch of {NUM_SAMPLES} samples",
            cpu_seconds(lambda: naive_training(naive, x, y), repeats),
            cpu_seconds(lambda: train(ours, x_ours, y, "cross_entropy", settings, rng), repeats),
        ),
    ]
    dense = mlp(SHAPE, 10, [200])
    rows.append(
        (
            f"MLP 784-200-10, one epoch of {NUM_SAMPLES} samples",
            cpu_seconds(lambda: naive_training(dense, x, y), repeats),
            cpu_seconds(lambda: train(dense, x, y, "cross_entropy", settings, rng), repeats),
        )
    )
    print(f"{'':46} {'plain':>9} {'ours':>9}  CPU ms, one thread, median of {repeats}")
    for name, plain, fast in rows:
        print(f"{name:46} {plain * 1e3:9.1f} {fast * 1e3:9.1f}  {plain / fast:.1f} times faster")
    print(f"largest difference of a loss: {difference:.1e}")
    print("ours by samples a forward pass, CNN, one model:", end="")
    for chunk in (100, 250, 500, 1000):
        x_many, y_many = x_ours.repeat(4, 1, 1, 1), y.repeat(4)
        seconds = cpu_seconds(partial(evaluate, ours, x_many, y_many, "cross_entropy", chunk), repeats)
        print(f"  {chunk}: {seconds * 1e3 / 4:.1f} ms", end="")
    print(" for 500 samples")


if __name__ == "__main__":
    main()
