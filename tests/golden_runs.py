"""Golden runs: short runs of every strategy, with results in tests/golden.zip, and the command that writes them.

``python -m tests.golden_runs [NAME ...]`` compares runs (all where none is named) with the stored results; with
``--write`` it stores theirs. A deliberate change of results writes the runs that it names, and no others.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt
import scipy.linalg
import torch
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]  # it ships no types

# All that is needed of the project.
from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.report import RoundReport
from florets.task.task import Task
from florets.task.wire import bank

ARCHIVE = Path(__file__).parent / "golden.zip"
"""Of each run ``<name>.json`` and ``<name>.npz``."""

ROUNDS = 3
"""Of a run that does not say."""

TOLERANCE = 5e-4
"""On another kind of machine, of |difference| / max(1, |stored value|); under batch normalisation 2.9e-4 was seen
between AVX2 and AVX-512."""

Arrays = Mapping[str, npt.NDArray[Any]]

# Fewer clients and a smaller network than the quickstart's, which one run has: for speed and size.
_SMALL = "eval_every=100 task.model_options.hidden=[16]"
_DIGITS = f"{_SMALL} num_clients=12"
_LABELS = f"experiment=digits_label_skew {_SMALL} num_clients=15"
# Moments of a linear classifier: those of a network cost many times as much.
_MOMENTS = (
    "eval_every=100 num_clients=8 k=2 task.num_clusters=2 task.model_options.hidden=[] strategy=two_phase "
    "strategy.moment_rounds=2"
)
_BATCH_NORM = "eval_every=100 num_clients=12 task.model=tests.own_functions:net train=sgd"
_CLOVE_LINEAR = "experiment=clove/linear train.local_epochs=2 task.partition_options.samples_per_client=100"
_CFL_GP_LINEAR = (
    "experiment=cfl_gp/linear num_rounds=5 task.data_options.train_per_line=200 task.data_options.test_per_line=100"
)
_MIXED = (
    "experiment=mixed_regression/a num_clients=30 task.partition_options.clients=[[30,50]] "
    "task.data_options.samples_per_cluster=2000"
)

# Some have train=sgd: Adam makes a whole step even of a gradient that is nothing but rounding error, and that differs
# between kinds of machines.
SETTINGS = {
    "digits-quickstart": "eval_every=100",
    "digits-clove": f"{_DIGITS} num_rounds=7",
    "digits-clove-agglomerative": f"{_LABELS} strategy.clustering=agglomerative strategy.square_root=true "
    "strategy.memory=true strategy.fraction_train=0.5 num_rounds=4",
    "digits-clove-auto": f"{_LABELS} k=auto k_max=8",
    "digits-clove-gradients": f"{_LABELS} averaging=gradients train.learning_rate=0.5",
    "digits-clove-partial": f"{_DIGITS} strategy.fraction_train=0.5 strategy.stability_rounds=2 num_rounds=8",
    "digits-clove-shared": f"{_DIGITS} strategy.shared_layers=[1] strategy.init=orthonormal first_round=evaluate",
    "digits-ifca": f"{_DIGITS} strategy=ifca",
    "digits-ifca-gradients": f"{_DIGITS} strategy=ifca first_round=evaluate strategy.fraction_train=0.5 "
    "averaging=gradients gradient_batch=9 server_optimizer=adam strategy.weighting=uniform",
    "digits-cfl_gp": f"{_DIGITS} strategy=cfl_gp train=sgd num_rounds=5",
    "digits-cfl_gp-auto": f"{_LABELS} strategy=cfl_gp train=sgd k=auto k_max=8 strategy.k_warmup=3 num_rounds=5",
    "digits-cfl_gp-batch-norm": f"{_BATCH_NORM} strategy=cfl_gp",
    "digits-cfl_gp-partial": f"{_DIGITS} strategy=cfl_gp train=sgd strategy.fraction_train=0.5 "
    "strategy.compression=4 strategy.period=3 strategy.running_mean=false num_rounds=7",
    "digits-cfl_gp-gradients": f"{_DIGITS} strategy=cfl_gp averaging=gradients strategy.quantise=round "
    "strategy.quantise_digits=4",
    "digits-two_phase": _MOMENTS,
    "digits-fedavg": f"{_DIGITS} strategy=fedavg",
    "digits-fedavg-batch-norm": f"{_BATCH_NORM} strategy=fedavg strategy.fraction_train=0.5",
    "digits-fedprox": f"{_DIGITS} strategy=fedprox strategy.proximal_mu=0.5",
    "digits-local": f"{_DIGITS} strategy=local num_rounds=2",
    "digits-ditto": f"{_LABELS} strategy=ditto strategy.fraction_train=0.3",
    "digits-per_fedavg": f"{_LABELS} strategy=per_fedavg strategy.alpha=0.1 strategy.fraction_train=0.5",
    "digits-per_fedavg-exact": f"{_BATCH_NORM} strategy=per_fedavg strategy.exact_hessian=true",
    "digits-fedala": f"{_LABELS} strategy=fedala strategy.fraction_train=0.7 num_rounds=4",
    "digits-fedproto": f"{_LABELS} strategy=fedproto strategy.fraction_train=0.3",
    "digits-fedpac": f"{_LABELS} strategy=fedpac strategy.fraction_train=0.5",
    "digits-oracle": f"{_DIGITS} strategy=oracle",
    "digits-oracle-gradients": f"{_DIGITS} strategy=oracle averaging=gradients strategy.fraction_train=0.5",
    "digits-one_shot": f"{_DIGITS} strategy=one_shot",
    "digits-k_fed": f"{_DIGITS} strategy=k_fed",
    "digits-k_fed-partial": f"{_LABELS} strategy=k_fed strategy.local_clusters=2 strategy.fraction_train=0.5 "
    "strategy.features=inputs_and_targets",
    "digits-discovery": f"{_DIGITS} strategy=discovery k=auto",
    "digits-discovery-partial": f"{_DIGITS} strategy=discovery strategy.fraction_train=0.5",
    "digits-cfl_s": f"{_DIGITS} strategy=cfl_s train=sgd strategy.mean_threshold=1.1 strategy.fraction_train=0.7 "
    "k=3 num_rounds=5",
    "digits-fesem": f"{_LABELS} strategy=fesem train=sgd strategy.weighting=examples strategy.fraction_train=0.8",
    "digits-flexcfl": f"{_DIGITS} strategy=flexcfl train=sgd strategy.fraction_train=0.5",
    "digits-pacfl": f"{_LABELS} strategy=pacfl strategy.fraction_train=0.5 num_rounds=2",
    "digits-stocfl": f"{_LABELS} strategy=stocfl strategy.fraction_train=0.5 num_rounds=3",
    "digits-fedclust": f"{_LABELS} strategy=fedclust strategy.fraction_train=0.5 num_rounds=2",
    "digits-sr_fca": f"{_LABELS} strategy=sr_fca strategy.fraction_train=0.5 num_rounds=4",
    "digits-flux": f"{_LABELS} strategy=flux strategy.fraction_train=0.5 num_rounds=3",
    "digits-fedgwc": f"{_DIGITS} strategy=fedgwc train=sgd train.local_steps=4 num_rounds=7",
    "digits-fedem": f"{_LABELS} strategy=fedem train=sgd k=2 strategy.fraction_train=0.5 num_rounds=3",
    # Clients begin alone; half of them move to other groups in round 4.
    "digits-feddrift": f"{_DIGITS} strategy=feddrift strategy.period=2 strategy.fraction_train=0.8 "
    "task.drift.rounds=[4] task.drift.fraction=0.5 train.local_epochs=4 num_rounds=7",
    "digits-fedrc": f"{_LABELS} strategy=fedrc train=sgd k=2 strategy.fraction_train=0.5 num_rounds=3",
    "digits-fedsoft": f"{_LABELS} strategy=fedsoft train=sgd k=3 strategy.fraction_train=0.7 num_rounds=3",
    "digits-autoencoder": "experiment=digits_autoencoder num_clients=10 k=5 task.num_clusters=5 train.local_epochs=1 "
    "task.model_options.bottleneck=2 eval_every=100",
    "clove-linear-clove": _CLOVE_LINEAR,
    "clove-linear-ifca": f"{_CLOVE_LINEAR} strategy=ifca",
    "clove-linear-cfl_gp": f"{_CLOVE_LINEAR} strategy=cfl_gp",
    "clove-linear-true_start": f"{_CLOVE_LINEAR} strategy=oracle strategy.mode=true_start train.optimizer=sgd",
    "clove-linear-one_shot": f"{_CLOVE_LINEAR} strategy=one_shot strategy.estimate=least_squares",
    "cfl_gp-linear-cfl_gp": _CFL_GP_LINEAR,
    **{
        f"cfl_gp-linear-{name}": f"{_CFL_GP_LINEAR} strategy={name}"
        for name in ("clove", "ifca", "oracle", "one_shot", "k_fed", "fedavg")
    },
    "mixed_regression-a-two_phase": f"{_MIXED} strategy.moment_rounds=3",
    "mixed_regression-a-direct": f"{_MIXED} strategy.moment_rounds=3 strategy.subspace=direct strategy.anchors=6 "
    "strategy.weighting=examples strategy.fraction_train=0.5",
    "mixed_regression-a-proximal": f"{_MIXED} strategy.moment_rounds=1 strategy.local_solver=fedprox",
    **{
        f"mixed_regression-a-{name}": f"{_MIXED} strategy={name}"
        for name in ("ifca", "oracle", "one_shot", "k_fed", "fedavg")
    },
}
"""Overrides of each run, by its name."""


@dataclass(frozen=True)
class Golden:
    """The results of one run.

    Attributes
    ----------
    environment
        What the bits of a result depend on, besides the code.
    clients
        Keys of all clients, in the order of the letters and numbers of `rounds`.
    digests
        Of each array, by its name.
    rounds
        What each round came to, bytes and assignments among them.
    arrays
        ``<k>/<name>`` of the final models; ``train_loss`` of each round, NaN for none; ``test_loss`` of each client
        that tested the final models.
    """

    environment: dict[str, str]
    clients: str
    digests: dict[str, str]
    rounds: list[dict[str, Any]]
    arrays: Arrays


@cache
def environment() -> dict[str, str]:
    """Return the versions and the routines that decide on the last bits of a result."""
    packages = ("flwr", "numpy", "scikit-learn", "scipy", "torch")
    # Two libraries of linear algebra are loaded, NumPy's and SciPy's; each chooses its routines by the processor.
    kernels = {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "products": _products(),
        "torch capability": torch.backends.cpu.get_cpu_capability(),
        "torch threads": str(torch.get_num_threads()),
        "blas": ", ".join(sorted(kernels)),
    }


def _products() -> str:
    """Return a digest of products and other values that NumPy, SciPy and PyTorch compute.

    Their routines depend on the processor, its caches and variables of the environment: not each shows by a name.
    """
    draws, found = np.random.default_rng(0), []
    for rows, inner, columns in ((1, 64, 10), (8, 64, 16), (9, 131, 43), (100, 784, 32)):
        wide = draws.random((rows, inner)) - 0.5, draws.random((inner, columns)) - 0.5
        for a, b in (wide, tuple(values.astype(np.float32) for values in wide)):
            own = torch.from_numpy(a) @ torch.from_numpy(b)
            found += [a @ b, np.exp(a), a.sum(axis=1), own.numpy(), own.softmax(1).numpy(), own.tanh().numpy()]
    square = draws.random((40, 40))
    found += [scipy.linalg.svdvals(square), np.linalg.eigvalsh(square)]
    images, filters = (torch.from_numpy(draws.random(shape, np.float32)) for shape in ((4, 3, 12, 12), (8, 3, 5, 5)))
    found.append(torch.conv2d(images, filters).numpy())
    return hashlib.sha256("".join(map(digest, found)).encode()).hexdigest()[:16]


def digest(array: npt.NDArray[Any]) -> str:
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def in_process(config: Config, task: Task) -> LocalGrid:
    return LocalGrid(app, config.num_clients)


def play(name: str, grid_of: Callable[[Config, Task], LocalGrid] = in_process) -> Golden:
    """Run a golden run, on another grid where one is given."""
    rounds = [] if "num_rounds=" in SETTINGS[name] else [f"num_rounds={ROUNDS}"]
    # The results that are equal to the bit on every engine.
    config = compose([*SETTINGS[name].split(), *rounds, "batch_clients=off"])
    task = build_task(config)
    strategy = build_strategy(config, task)
    reports: list[RoundReport] = []
    strategy.start(
        grid_of(config, task),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    clients = sorted(strategy.federation.clients)
    arrays = {
        f"{index}/{entry}": array.numpy()
        for index, model in enumerate(bank.models(strategy.final_models(strategy.context.models).record))
        for entry, array in model.items()
    }
    arrays["train_loss"] = np.array(
        [np.nan if report.train_loss is None else report.train_loss for report in reports]
    )
    tested = reports[-1].evaluations
    arrays["test_loss"] = np.array([tested[key].loss for key in clients if key in tested])
    return Golden(
        environment=environment(),
        clients=" ".join(clients),
        digests={entry: digest(array) for entry, array in arrays.items()},
        rounds=[_round(report, clients) for report in reports],
        arrays=arrays,
    )


def _round(report: RoundReport, clients: Iterable[str]) -> dict[str, Any]:
    return {
        "round": report.server_round,
        "phase": report.phase,
        "participants": "".join("x" if key in report.participants else "." for key in clients),
        "assignment": " ".join(str(report.assignment.get(key, "-")) for key in clients),
        "bytes_down": report.bytes_down,
        "bytes_up": report.bytes_up,
        "replies": {kind: number for kind, number in report.replies.items() if number},
    }


def write(name: str, golden: Golden) -> None:
    texts = {field: value for field, value in vars(golden).items() if field != "arrays"}
    arrays = BytesIO()
    # A slash would make a folder inside the archive.
    np.savez_compressed(arrays, **{entry.replace("/", ":"): array for entry, array in golden.arrays.items()})
    with ZipFile(ARCHIVE) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    entries[f"{name}.json"] = (json.dumps(texts, indent=1) + "\n").encode()
    entries[f"{name}.npz"] = arrays.getvalue()
    with ZipFile(ARCHIVE, "w", ZIP_DEFLATED) as archive:
        for entry in sorted(entries):
            # Without the time of writing, so that equal results are an equal file.
            archive.writestr(ZipInfo(entry), entries[entry], ZIP_DEFLATED)


def stored() -> set[str]:
    with ZipFile(ARCHIVE) as archive:
        return set(archive.namelist())


def read(name: str) -> Golden:
    with ZipFile(ARCHIVE) as archive:
        texts = json.loads(archive.read(f"{name}.json"))
        content = BytesIO(archive.read(f"{name}.npz"))
    with np.load(content, allow_pickle=False) as file:
        arrays = {entry.replace(":", "/"): file[entry] for entry in file.files}
    return Golden(arrays=arrays, **texts)


def differences(stored: Golden, found: Golden) -> list[str]:
    """Return a line for each thing in which a run's results are not the stored ones.

    On the same kind of machine every bit counts; elsewhere models and losses may differ by `TOLERANCE`.
    """
    same_machine = stored.environment == found.environment
    lines = [
        f"array {entry}: stored with a digest that is not its own; write the run again"
        for entry, array in stored.arrays.items()
        if stored.digests.get(entry) != digest(array)
    ]
    if stored.clients != found.clients:
        lines.append(f"clients: stored {stored.clients}, found {found.clients}")
    if len(stored.rounds) != len(found.rounds):
        lines.append(f"rounds: stored {len(stored.rounds)}, found {len(found.rounds)}")
    for old, new in zip(stored.rounds, found.rounds, strict=False):
        lines += [
            f"round {old['round']}, {key}: stored {old.get(key)}, found {new.get(key)}"
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
    if stored.arrays.keys() != found.arrays.keys():
        odd = sorted(stored.arrays.keys() ^ found.arrays.keys())
        lines.append(f"arrays that only one of both has: {', '.join(odd)}")
    for entry, array in stored.arrays.items():
        if entry in found.arrays:
            lines += _array_differences(entry, array, found.arrays[entry], same_machine)
    if lines and not same_machine:
        odd = [key for key in found.environment if stored.environment.get(key) != found.environment[key]]
        lines.append(f"(another kind of machine, for its {', '.join(odd)}: held to {TOLERANCE:g})")
    return lines


def _array_differences(entry: str, old: npt.NDArray[Any], new: npt.NDArray[Any], same_machine: bool) -> list[str]:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return [f"array {entry}: stored {old.dtype} {old.shape}, found {new.dtype} {new.shape}"]
    if digest(old) == digest(new):
        return []
    a, b = old.astype(np.float64), new.astype(np.float64)
    apart = np.abs(a - b)
    near = (apart <= TOLERANCE * np.maximum(1.0, np.abs(a))) | (np.isnan(a) & np.isnan(b))
    if not same_machine and near.all():
        return []
    differ = int(np.sum((a != b) & ~(np.isnan(a) & np.isnan(b))))
    largest = float(np.nanmax(apart, initial=0.0))
    return [f"array {entry}: {differ} of {a.size} values differ, largest difference {largest:.3g}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the results of the named runs")
    parser.add_argument("names", nargs="*", help=f"runs; all where none is named: {', '.join(SETTINGS)}")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in SETTINGS]:
        parser.error(f"no such run: {', '.join(unknown)}")
    failed = 0
    for name in given.names or SETTINGS:
        found = play(name)
        if given.write:
            write(name, found)
            print(f"{name}: stored", flush=True)
            continue
        lines = differences(read(name), found)
        failed += bool(lines)
        print("\n  ".join([f"{name}: {'differs' if lines else 'as stored'}", *lines]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
