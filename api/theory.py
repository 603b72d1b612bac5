"""`florets.theory`: what a paper's theorems say about an experiment, next to its data and its run."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from florets.api.keys import overrides_of
from florets.conf.problems import ConfigError
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.reports.summary import ALL_RIGHT, found_ari, last, reaches, read_lines
from florets.server_app.build import build_checked, build_task
from florets.strategies import STRATEGIES, package_of
from florets.strategies.base.theory import Case, Row
from florets.strategies.core import FloatArray
from florets.strategies.registry import find_strategy
from florets.studies import one_run
from florets.task.device import one_thread_within
from florets.task.randomness import Purpose, generator
from florets.task.registry import resolve
from florets.task.task import Task
from florets.task.training.loop import gradient
from florets.task.training.losses import loss_vector
from florets.task.wire import bank

if TYPE_CHECKING:
    from pandas import DataFrame


@one_thread_within()
def theory(experiment: str | None = None, /, **keys: Any) -> "DataFrame":
    """Compare an experiment with the conditions and promises of the theorems of two-phase, CLoVE or CFL-GP.

    Nothing is trained: what only a run can measure is read from the finished run of the same keys. Constants that a
    paper leaves open are 1.

    Parameters
    ----------
    experiment : str, optional
        Name of the preset; by default the quickstart.
    **keys
        The keys of the command.

    Returns
    -------
    DataFrame
        A row for each quantity: ``quantity``, ``rule``, ``theory``, ``here``, ``holds`` and ``source``; missing
        values are not known, or not run yet.

    Raises
    ------
    ConfigError
        With every problem of the keys, if no theorem of the strategy is implemented, or if the true groups are not
        known.

    Notes
    -----
    ::

        florets theory experiment=mixed_regression/a     kappa, chi squared(n), rho, nu, the bound; m, n_H and T
        florets theory experiment=clove/theorem          separation, proximity, the conditions of Theorem 4.1
        florets theory experiment=cfl_gp/linear          the gradient gap, and the rounds that Theorem 1 asks for

    Columns: theory: what is required or promised; here: the experiment's value; holds: whether it complies. Empty:
    not known, for the reason given as the source, or not run. inf: never, or a bound that says nothing.
    """
    import pandas as pd

    overrides = overrides_of(experiment, keys)
    config = one_run.prepare(overrides, Path.cwd())
    folder = results_folder(config, overrides)
    is_run = (folder / "summary.json").is_file()
    frame = pd.DataFrame(_theory_of(config, folder if is_run else None), columns=Row._fields)
    state = f"run: {folder}" if is_run else "not run yet: what only a run measures is empty"
    frame.attrs["title"] = f"{config.experiment}, {config.strategy.name}, seed {config.seed}; {state}"
    return frame


def _theory_of(config: Config, folder: Path | None) -> list[Row]:
    """Return the theory of an experiment, and what the run in a folder measured of it.

    Raises
    ------
    ConfigError
        If no theorem of the strategy is implemented, or the groups are not known.
    """
    name = find_strategy(config.strategy.name).id
    having = [one for one in STRATEGIES if find_spec(f"{package_of(one)}.theory")]
    if name not in having:
        raise ConfigError(f"strategy={name}: no theorem is implemented; choose one of {', '.join(having)}.")
    if config.task.partition == "own":
        raise ConfigError(
            "task.partition=own: theory needs the data of all clients here; give a preset of simulated clients."
        )
    theory: Callable[[Case], Iterator[Row]] = import_module(f"{package_of(name)}.theory").theory
    return list(theory(_case(config, build_task(config), folder)))


def _case(config: Config, task: Task, folder: Path | None) -> Case:
    clients = range(task.num_clients)
    clusters = np.array([task.cluster_of(client) for client in clients])
    if clusters.min() < 0 or len(np.unique(clusters)) < 2:
        why = "are not known" if clusters.min() < 0 else "are a single one"
        raise ConfigError(
            f"task.partition={config.task.partition}: the clients' true groups {why}, and the theorems are about "
            "several; use a partition that makes groups, with task.num_clusters of at least 2."
        )
    strategy, models, _ = build_checked(config, task)
    states = [one.to_torch_state_dict() for one in bank.models(models.record)]
    lines = [] if folder is None else read_lines(folder)
    found = next((line["round"] for line in lines if reaches(line, ALL_RIGHT)), None)
    # Never found, it is no round at all.
    never = math.inf if any(found_ari(line) is not None for line in lines) else None
    true = task.data.true_models
    return Case(
        run=config,
        settings=strategy.settings,
        clusters=clusters,
        sizes=np.array([task.num_examples_of(client) for client in clients]),
        models=models.bank,
        true_models=None if true is None else true.astype(np.float64),
        covariance=partial(_covariance, task),
        option=partial(_option, task),
        inputs=lambda: (task.client(client).x_train.flatten(1).numpy() for client in clients),
        losses=partial(_losses, task, states),
        gradients=partial(_gradients, task, states, config.seed),
        errors=[(line["round"], error) for line in lines if (error := line["model_error"]) is not None],
        error=last(lines, "model_error"),
        ari=last(lines, "ari"),
        found=never if found is None else found,
    )


def _option(task: Task, name: str, default: Any) -> Any:
    """Return an option of the data, as given or by their own default."""
    own = inspect.signature(resolve("data", task.spec.data)).parameters.get(name)
    return task.spec.data_options.get(name, default if own is None else own.default)


def _covariance(task: Task) -> tuple[float, float]:
    """Return bounds alpha and beta on the eigenvalues of the inputs' covariance: as drawn, or else as measured."""
    if _option(task, "features", "") == "identity":
        root = float(_option(task, "covariance_spread", 1.0)) ** 0.5
        return 1 / root, root
    data = task.data
    x, group = data.x_train.reshape(len(data.x_train), -1).astype(np.float64), data.group_train
    parts = [x] if group is None else [x[group == one] for one in np.unique(group)]
    values = np.stack([np.linalg.eigvalsh(part.T @ part / len(part)) for part in parts])
    return float(values.min()), max(1.0, float(values.max()))


def _losses(task: Task, states: Sequence[Mapping[str, Any]]) -> FloatArray:
    module, parts = task.build_model(), map(task.client, range(task.num_clients))
    return np.stack([loss_vector(module, states, part.x_train, part.y_train, task.spec.loss) for part in parts])


def _gradients(task: Task, states: Sequence[Mapping[str, Any]], seed: int, batch: int | None) -> FloatArray:
    module = task.build_model()
    names = [name for name, _ in module.named_parameters()]

    def flat(client: int) -> FloatArray:
        part, rng = task.client(client), generator(seed, 1, Purpose.GRADIENT_BATCH, client)
        values, _ = gradient(module, part.x_train, part.y_train, task.spec.loss, batch, rng)
        return np.concatenate([np.ravel(values[name]) for name in names]).astype(np.float64)

    def of_model(state: Mapping[str, Any]) -> FloatArray:
        module.load_state_dict(state)
        return np.stack([flat(client) for client in range(task.num_clients)])

    return np.stack([of_model(state) for state in states])
