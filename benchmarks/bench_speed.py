"""Seconds and peak memory of a round, in blocks (`batch_clients=auto`), client by client, and as a bare PyTorch loop.

``python -m benchmarks.bench_speed [--device cuda] [--data-dir DIR] [--repeats 3]``

The bare loop has the same arithmetic and nothing else, and no test. Cases: IFCA on its paper's rotated MNIST (10 full
steps, here 120 clients of 100 images; the paper has 2,400), CFL-GP's round without clustering, CLoVE on MNIST label
skew 1, with a small CNN and with ResNet-18 on CIFAR-10 (10 x 100 images), and on 1,000 digits clients; FedAvg with a
CNN of 32 and 64 channels. Without a folder with MNIST and CIFAR-10 only the digits.

Each case has a process; shown are medians of CPU seconds and MB, on a CUDA device of wall seconds and its memory.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measuring import in_own_process

IFCA = [
    "experiment=paper/ifca/rotated_mnist", "num_clients=120", "task.partition_options.samples_per_client=100",
    "train.batch_size=100", "eval_every=1000",
]  # fmt: skip
CFL_GP = ["experiment=cfl_gp/rotated_mnist", "strategy.period=1000", "eval_every=1000"]
WIDE = "task.model_options.channels=[32,64]"
CIFAR = [
    "experiment=paper/clove/cifar10_label_skew_1", "num_clients=10", "k=2",
    "task.partition_options.samples_per_client=100", "train.batch_size=100", "eval_every=1000",
]  # fmt: skip
MNIST = ["experiment=clove/mnist_label_skew_1", "strategy.stop_when_stable=false", "eval_every=1000"]
DIGITS = ["num_clients=1000", "strategy.stop_when_stable=false"]


def rounds(overrides: list[str], way: str, device: str = "cpu") -> dict[str, float]:
    """Return the median seconds of rounds 3 to the last, and the peak memory in MB."""
    import torch

    from benchmarks.measuring import started
    from florets.conf.compose import compose
    from florets.engines.engine import client_side
    from florets.engines.local_grid import LocalGrid
    from florets.server_app.build import build_strategy, build_task
    from florets.task.device import find_device
    from florets.task.training.vectorised import block_size

    config = compose([*overrides, f"device={device}"])
    task, there = build_task(config), find_device(device)
    if way == "bare":
        return {"seconds": bare_round(config, task), "MB": peak()}
    size = block_size(task.build_model(), there) if way == "auto" else 1
    is_cuda = there.type == "cuda"

    def all_done() -> float:
        torch.cuda.synchronize(there)
        return time.perf_counter()

    side, clock, marks = client_side(), all_done if is_cuda else time.process_time, list[float]()
    grid = LocalGrid(side.app, config.num_clients, None, side.in_blocks, side.adopt)
    grid.share(task)
    grid.block_size = size
    started(build_strategy(config, task), config, task, grid, lambda *_: marks.append(clock()))
    # Without the first round.
    seconds = [end - begin for begin, end in pairwise(marks)]
    memory = torch.cuda.max_memory_allocated(there) / 2**20 if is_cuda else peak()
    return {"seconds": statistics.median(seconds[1:]), "MB": memory}


def bare_round(config: Any, task: Any) -> float:
    """Return the CPU seconds of a round's losses and training as a loop over the clients writes them."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    gradients = config.averaging == "gradients"
    # What is asked for before training: IFCA and CLoVE the losses of all models, the others nothing.
    compared = int(config.k) if config.strategy.name in ("clove", "ifca") else 0
    module, states = task.build_model(), [task.build_model().state_dict() for _ in range(max(1, compared))]
    clients = [task.client(number) for number in range(config.num_clients)]
    times = []
    for _ in range(3):
        start = time.process_time()
        for client in clients:
            x, y = client.x_train, client.y_train
            losses = []
            for state in states[:compared]:
                module.load_state_dict(state)
                module.eval()
                with torch.inference_mode():
                    losses.append(F.cross_entropy(module(x), y).item())
            module.load_state_dict(states[losses.index(min(losses)) if losses else 0])
            module.train()
            if gradients:
                drawn = torch.randperm(len(x))[: config.gradient_batch if config.gradient_batch != "full" else None]
                F.cross_entropy(module(x[drawn]), y[drawn]).backward()
                [p.grad.numpy().copy() for p in module.parameters()]
                module.zero_grad()
                continue
            sgd = config.train.optimizer == "sgd"
            make = torch.optim.SGD if sgd else torch.optim.Adam
            optimizer = make(module.parameters(), lr=config.train.learning_rate)
            for drawn in batches(len(x), config.train):
                optimizer.zero_grad()
                F.cross_entropy(module(x[drawn]), y[drawn]).backward()
                optimizer.step()
            [p.detach().numpy().copy() for p in module.parameters()]
        times.append(time.process_time() - start)
    return min(times)


def batches(num_samples: int, train: Any) -> Iterator[Any]:
    """Yield the samples of each step of one client's training, anew in each epoch; all of them for full steps."""
    import torch

    full = train.batch_size >= num_samples
    epochs = train.local_steps if train.local_steps and full else round(train.local_epochs)
    for _ in range(epochs):
        yield from [slice(None)] if full else torch.randperm(num_samples).split(train.batch_size)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(cases: dict[str, tuple[Any, ...]], repeats: int) -> None:
    """Print the medians of cases that take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            found[name].append(in_own_process(__file__, "rounds", *case))
    for name, times in found.items():
        seconds, memory = (statistics.median(time[what] for time in times) for what in ("seconds", "MB"))
        print(f"{name:44}{seconds:9.3f}{memory:10.0f}", flush=True)


def cases(data_dir: str, device: str) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of `rounds` by the name of the case."""
    data = [f"data_dir={data_dir}", "num_rounds=4"]
    settings = {"1,000 digits clients": [*DIGITS, "num_rounds=4"]}
    if data_dir:
        settings |= {
            "IFCA, rotated MNIST": [*IFCA, *data],
            "CFL-GP, no clustering": [*CFL_GP, data[0], "num_rounds=8"],
            "MNIST label skew 1": [*MNIST, *data],
            "small CNN, CIFAR-10": [*CIFAR, "task.model=cnn", *data],
            "FedAvg, CNN [32, 64], CIFAR-10": [*CIFAR, "strategy=fedavg", "task.model=cnn", WIDE, *data],
            "ResNet-18, CIFAR-10": [*CIFAR, "task.model=resnet18", *data],
        }
    return {
        f"{case}: {way}": (overrides, way, device)
        for case, overrides in settings.items()
        for way in ("bare", "off", "auto")
        if way != "bare" or device == "cpu"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST and CIFAR-10")
    parser.add_argument("--device", default="cpu", help="device of the rounds: cpu, cuda, cuda:1")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    data_dir = str(Path(given.data_dir).absolute()) if given.data_dir else ""
    print(f"{'':44}{'seconds':>9}{'MB':>10}")
    table(cases(data_dir, given.device), given.repeats)


if __name__ == "__main__":
    main()
