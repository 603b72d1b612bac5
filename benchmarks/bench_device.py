"""Seconds of a round on a GPU and its memory, with each client's work by itself and with `batch_clients=auto`.

``python benchmarks/bench_device.py --data-dir DIR [--device cuda] [--repeats 3] [--tiny] [--json FILE]``

CLoVE's clustering rounds with K = 5 and a test: MNIST label skew 1, 1,000 digits clients, CIFAR-10 with the small
convolutional network, and with ResNet-18 for 25 clients, which no block takes. Each run has a process of its own, and
the runs take turns. Shown are medians of the rounds after the second, in wall seconds with all of the device's work
done, and the most memory that PyTorch has held on it. Without a GPU and without ``--device`` nothing is measured;
``--device cpu --tiny`` says whether the cases run. Compare rows of one table.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.measuring import in_own_process, timed_rounds
from florets.conf.compose import compose
from florets.server_app.build import build_task
from florets.task.device import find_device
from florets.task.training.vectorised import block_size

CIFAR = ["experiment=paper/clove/cifar10_label_skew_1", "num_clients=25", "k=5"]
CASES = {
    "1,000 digits clients": ["num_clients=1000", "k=5"],
    "MNIST label skew 1": ["experiment=clove/mnist_label_skew_1"],
    "CIFAR-10, cnn": [*CIFAR, "task.model=cnn"],
    "CIFAR-10, ResNet-18": [*CIFAR, "task.model=resnet18"],
}
TINY = {
    "1,000 digits clients": ["num_clients=20", "num_rounds=2"],
    "MNIST label skew 1": ["num_clients=5", "task.partition_options.samples_per_client=20", "num_rounds=2"],
    "CIFAR-10, cnn": ["num_clients=5", "task.partition_options.samples_per_client=20", "num_rounds=2"],
    "CIFAR-10, ResNet-18": ["num_clients=5", "task.partition_options.samples_per_client=4", "num_rounds=2"],
}


def measured(overrides: list[str], device: str, way: str) -> dict[str, float]:
    """Return the median wall seconds of a round and the device's peak memory in MB, 0 on a CPU."""
    # A key that stands there twice counts as it stands last.
    keys = dict(key.split("=", 1) for key in ["strategy.stop_when_stable=false", "num_rounds=5", *overrides])
    config = compose([*(f"{key}={value}" for key, value in keys.items()), f"device={device}"])
    there, task = find_device(device), build_task(config)
    size = block_size(task.build_model(), there) if way == "auto" else 1

    def all_done() -> float:
        if there.type == "cuda":
            torch.cuda.synchronize(there)
        return time.perf_counter()

    seconds, _ = timed_rounds(config, task, size, clock=all_done)
    memory = torch.cuda.max_memory_allocated(there) / 2**20 if there.type == "cuda" else 0.0
    # The first rounds move the data, and choose kernels.
    return {"wall": statistics.median(seconds[1:] or seconds), "memory": memory, "block": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="", help="cuda, cuda:1 or cpu; a GPU where none is named")
    parser.add_argument("--data-dir", default="", help="folder of MNIST and CIFAR-10; else their rows are left out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a few samples, to see that the cases run")
    parser.add_argument("--json", default="", help="file for the figures")
    given = parser.parse_args()
    device = given.device or ("cuda" if torch.cuda.is_available() else "")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    if not device:
        print("no GPU: nothing to measure")
    else:
        print(f"{'case on ' + device:32}{'block':>7}{'off, s':>10}{'auto, s':>10}{'off, MB':>10}{'auto, MB':>10}")
    for name, keys in CASES.items() if device else ():
        if "experiment" in keys[0] and not given.data_dir:
            continue
        data = [f"data_dir={Path(given.data_dir).absolute()}"] if given.data_dir else []
        overrides = [*keys, *(TINY[name] if given.tiny else []), *data]
        runs: dict[str, list[dict[str, float]]] = {"off": [], "auto": []}
        for _ in range(given.repeats):
            for way, found in runs.items():
                found.append(in_own_process(__file__, "measured", overrides, device, way))
        row = {
            way: {what: statistics.median(run[what] for run in found) for what in found[0]}
            for way, found in runs.items()
        }
        rows[name] = row
        off, auto = row["off"], row["auto"]
        times = f"{auto['block']:7.0f}{off['wall']:10.3f}{auto['wall']:10.3f}"
        print(f"{name:32}{times}{off['memory']:10.0f}{auto['memory']:10.0f}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
