"""Seconds of a round, peak memory and imports, each measured in its own process.

``python -m benchmarks.bench_speed [own_settings strategies imports steps] [--device cuda] [--data-dir DIR]
[--repeats 3] [--clients 1000 5000] [--json FILE]``

- ``own_settings``: a round alone, in blocks (`batch_clients=auto`) and as a bare loop over the clients, with the same
  arithmetic by PyTorch and nothing else, and no test: IFCA on its paper's rotated MNIST (10 full steps, here
  120 clients of 100 images; the paper has 2,400), CFL-GP's round without clustering, CLoVE on MNIST label
  skew 1, with a small CNN and with ResNet-18 on CIFAR-10 (10 x 100 images), and on 1,000 digits clients; FedAvg
  with a CNN of 32 and 64 channels.
- ``strategies``: a round of four strategies with test, on digits and on MNIST label skew 1.
- ``imports``: what a process imports before its first message, as each message to a deployed node costs it.
- ``steps``: one step each of the server's work on M clients, as the strategies call it; on all pairs up to 5,000.

Cases take turns; shown are medians: CPU seconds and MB of the process. On a CUDA device (the first two tables) they
are wall seconds with all of its work done and the most memory that PyTorch held on it; there is no bare loop. Figures
depend on the machine: compare rows of one table.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measuring import in_own_process

TABLES = ("own_settings", "strategies", "imports", "steps")
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
IMPORTS = ("torch", "flwr.app", "florets.client_app.app", "florets.server_app.app")
STEPS = (
    "k-means, K = 10", "Ward, K = 10", "choose K by silhouette", "match clusters to models", "nearest centroid",
    "ARI", "copy of CLoVE's state", "discovery, 4 folds of 256",
)  # fmt: skip
PAIRS, PAIRS_UP_TO = ("CFL-GP, products of 1,000 entries", "CFL-GP, spectral step, K = 10"), 5000


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
    size = block_size(task.build_model(), there, task.input_shape) if way == "auto" else 1
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


def imported(module: str) -> dict[str, float]:
    start = time.process_time()
    __import__(module)
    return {"seconds": time.process_time() - start, "MB": peak()}


def step(name: str, num_vectors: int) -> dict[str, float]:
    """Return the CPU seconds of one of the server's steps on so many clients."""
    import numpy as np

    from florets.strategies.base.report import snapshot
    from florets.strategies.cfl_gp.profile import GradientProfile, spectral_features
    from florets.strategies.clove.strategy import CLoVEState
    from florets.strategies.core.cluster import choose_k, cluster, match_min_cost, nearest_centroid
    from florets.strategies.core.folds import discover
    from florets.strategies.core.metrics import adjusted_rand_index

    rng = np.random.default_rng(0)
    truth = np.arange(num_vectors) % 10
    vectors = 2.0 - np.eye(10)[truth] + 0.2 * rng.standard_normal((num_vectors, 10))
    state = CLoVEState(histories={str(client): (1, 2, 3) for client in range(num_vectors)})
    work: list[Callable[[], object]] = [
        lambda: cluster(vectors, 10, "kmeans", rng),
        lambda: cluster(vectors, 10, "agglomerative", rng),
        lambda: choose_k(vectors, 10, rng),
        lambda: match_min_cost(vectors, truth),
        lambda: nearest_centroid(vectors, np.eye(10)),
        lambda: adjusted_rand_index(truth.tolist(), truth.tolist()),
        lambda: snapshot(state),
        lambda: discover(folds.astype(np.float32), None, rng=rng),
    ]
    if name == STEPS[-1]:
        folds = np.eye(10, 256)[truth][:, None] + rng.standard_normal((num_vectors, 4, 256))
    if name in PAIRS:
        profile = GradientProfile.empty(1, 1000)
        profile.add_clients(num_vectors)
        rows, updates = np.arange(num_vectors), rng.standard_normal((num_vectors, 1000))
        work += [lambda: profile.refresh(0, rows, list(updates)), lambda: spectral_features(profile.gram(rows), 10)]
    if name == PAIRS[-1]:
        profile.refresh(0, rows, list(updates))
    start = time.process_time()
    work[(*STEPS, *PAIRS).index(name)]()
    return {"seconds": time.process_time() - start, "MB": peak()}


def table(cases: dict[str, tuple[Any, ...]], repeats: int) -> dict[str, dict[str, float]]:
    """Print and return the medians of cases that take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            found[name].append(in_own_process(__file__, *case))
    rows = {}
    for name, times in found.items():
        rows[name] = {what: statistics.median(time[what] for time in times) for what in times[0]}
        print(f"{name:44}{rows[name]['seconds']:9.3f}{rows[name]['MB']:10.0f}", flush=True)
    return rows


def cases(name: str, data_dir: str, device: str, clients: list[int]) -> dict[str, tuple[Any, ...]]:
    """Return the cases of a table: by name a function of this file and its arguments."""
    data = [f"data_dir={data_dir}", "num_rounds=4"]
    if name == "imports":
        return {module: ("imported", module) for module in IMPORTS}
    if name == "steps":
        return {
            f"{step}, {number:,} clients": ("step", step, number)
            for number in clients
            for step in (*STEPS, *PAIRS * (number <= PAIRS_UP_TO))
        }
    if name == "strategies":
        presets = {"digits": ["experiment=quickstart", "num_rounds=6"]}
        presets |= {"MNIST label skew 1": [MNIST[0], *data]} if data_dir else {}
        return {
            f"{case}: {strategy}": ("rounds", [*keys, f"strategy={strategy}", *more], "off", device)
            for case, keys in presets.items()
            for strategy, more in {"clove": MNIST[1:2], "ifca": [], "fedavg": [], "local": []}.items()
        }
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
        f"{case}: {way}": ("rounds", overrides, way, device)
        for case, overrides in settings.items()
        for way in ("bare", "off", "auto")
        if way != "bare" or device == "cpu"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all where none is named")
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST and CIFAR-10")
    parser.add_argument("--device", default="cpu", help="device of the rounds: cpu, cuda, cuda:1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", nargs="+", type=int, default=[1000, 5000], help="of the server's steps")
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    data_dir = str(Path(given.data_dir).absolute()) if given.data_dir else ""
    found = {}
    for name in given.tables or TABLES:
        print(f"\n{name:44}{'seconds':>9}{'MB':>10}")
        found[name] = table(cases(name, data_dir, given.device, given.clients), given.repeats)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
