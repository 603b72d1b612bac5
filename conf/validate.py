"""Ranges and combinations: what can be refused without looking at any data."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from florets.conf.class_names import class_problems
from florets.conf.drift import drift_problems
from florets.conf.libraries import FLOWER, HUGGING_FACE
from florets.conf.measure import measure_problems
from florets.conf.personal import personal_problems
from florets.conf.problems import ConfigError
from florets.conf.ray_engine import ray_problems
from florets.conf.schema import AUTO, Config, TaskConfig
from florets.conf.trackers import tracker_problems
from florets.conf.typed import read_config, show
from florets.strategies.registry import usable_settings
from florets.strategies.settings import Settings
from florets.task.keys import range_problems
from florets.task.training.settings import Training

_REGRESSIONS = ("linear", "lines")
OWN = "own"
NATURAL = "natural"
"""The built-in partition that need not know the clusters."""
_PRESET = re.compile(r"\w+(?:[/.-]\w+)*", re.ASCII)
MOST_COMPARED = 20_000
"""Clients whose pairs the server compares: one number for each pair is 3.2 GB."""
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


def checked_config(values: Mapping[str, Any]) -> tuple[Config | None, list[str]]:
    """Build a `Config` from nested plain values, and return it with every problem: types, ranges, combinations.

    Returns
    -------
    config : Config or None
        It can run where there is no problem. None when there is no such strategy.
    problems : list of str
        One line each.
    """
    problems: list[str] = []
    config, defaulted = read_config(values, problems)
    if config is not None:
        problems += without_guesses(find_problems(config), defaulted)
    return config, problems


def without_guesses(problems: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the problems that name none of some keys, which do not have the values that were meant."""
    names = [re.compile(rf"(?<![\w.]){re.escape(key)}(?!\w)") for key in keys]
    return [line for line in problems if not any(name.search(line) for name in names)]


def find_problems(config: Config) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    own = config.strategy.settings
    return [
        *range_problems(config),
        *range_problems(own, "strategy."),
        *_run(config),
        *_participation(config),
        *_models(config),
        *_own(own, "conflicts"),
        *_own(own, "problems", config),
        *_train(config),
        *_task(config.task),
        *drift_problems(config),
        *personal_problems(config),
        *ray_problems(config),
        *tracker_problems(config.tracker),
    ]


def _own(settings: Settings, method: str, *given: Config) -> list[str]:
    """Return what a strategy's own check says; one that fails, or says something else than lines, is named."""
    name = f"{type(settings).__name__}.{method}()"
    try:
        lines = getattr(settings, method)(*given)
    # It may be anybody's code.
    except Exception as error:
        raise ConfigError(
            [f"strategy: {name} failed with {type(error).__name__}: {error}; mend the strategy."]
        ) from error
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(
            [f"strategy: {name} returned {lines!r}, and must return a list of strings; mend the strategy."]
        )
    return lines


def _run(config: Config) -> list[str]:
    problems = []
    # The name becomes a path of the results: it must not lead out of their folder.
    if not _PRESET.fullmatch(config.experiment):
        problems.append(f"experiment={config.experiment}: must be a preset's name, such as clove/linear.")
    if config.seed >= 2**63:
        problems.append(f"seed={config.seed}: must be less than 2**63, the largest number that a message can hold.")
    problems += _nodes(config)
    if config.engine == "flwr" and config.batch_clients != "off":
        problems.append(
            f"batch_clients={config.batch_clients}: Flower sends each client its own messages; leave it out, or use "
            "engine=local."
        )
    if config.engine == "flwr" and config.workers not in (None, 1):
        problems.append(
            f"workers={config.workers}: Flower has processes of its own for the clients; leave it out, or use "
            "engine=local."
        )
    if not _DEVICE.fullmatch(config.device):
        problems.append(f"device={config.device}: must be cpu, cuda, cuda:<number>, mps or auto.")
    for name, folder in (("data_dir", config.data_dir), ("results_dir", config.results_dir)):
        if not folder.strip():
            problems.append(f"{name}: must name a folder; leave the key out for the default.")
    if config.cluster_test and config.task.num_clusters == 0:
        problems.append(
            "cluster_test=true: tests on each true cluster, and this task has none (task.num_clusters=0); leave "
            "cluster_test out, or give the true number as task.num_clusters."
        )
    problems += measure_problems(config)
    if config.stop_at_ari is not None and config.task.num_clusters < 2 and config.task.partition != OWN:
        problems.append(
            f"stop_at_ari={show(config.stop_at_ari)}: the ARI compares with several true clusters, and this task has "
            f"{config.task.num_clusters or 'none'} (task.num_clusters={config.task.num_clusters}); leave stop_at_ari "
            "out, or give the true number as task.num_clusters."
        )
    return problems


def _nodes(config: Config) -> list[str]:
    """Check how many clients a run waits for; of nodes with data of their own nobody knows how many will come."""
    least = config.min_clients
    problems = []
    if config.task.partition != OWN:
        # Of nodes with data of their own the number is known where their folders are counted.
        if isinstance(config.workers, int) and config.workers > config.num_clients >= 1:
            problems.append(
                f"workers={config.workers}: must be at most num_clients={config.num_clients}; auto means one for "
                "each core."
            )
        if least is not None and least > config.num_clients:
            problems.append(
                f"min_clients={least}: must be at most num_clients={config.num_clients}; null means all of them."
            )
    elif config.engine == "flwr":
        problems.append(
            "engine=flwr: simulated nodes have no data of their own (task.partition=own); use engine=local for a dry "
            "run over the folders in data_dir, or real nodes (docs/deployment.md)."
        )
    return problems


def _expected(config: Config) -> tuple[str, int]:
    """Return the key that says how many clients a run expects, and that number."""
    if config.task.partition == OWN and config.min_clients is not None:
        return "min_clients", config.min_clients
    return "num_clients", config.num_clients


def _participation(config: Config) -> list[str]:
    rho, name, clients = config.strategy.settings.fraction_train, "num_clients", config.num_clients
    problems: list[str] = []
    # Of nodes with data of their own more may come than it takes to start, and one of them always takes part.
    if config.task.partition == OWN:
        return problems
    # The tolerance lets 1/3 of 3 clients be one client in spite of rounding.
    if clients >= 1 and 0 < rho * clients < 1 - 1e-9:
        problems.append(
            f"strategy.fraction_train={show(rho)}: of {name}={clients} no client would take part "
            f"in a round; use at least {1 / clients:.4g}, or more clients."
        )
    problems += _pairs(config)
    if config.task.num_clusters > clients >= 1:
        problems.append(
            f"{name}={clients}: the task has task.num_clusters={config.task.num_clusters} clusters "
            "and each needs a client; use more clients or fewer clusters."
        )
    return problems


def _pairs(config: Config) -> list[str]:
    """Refuse comparisons of all pairs of so many clients that they do not fit into memory."""
    settings, clients = config.strategy.settings, config.num_clients
    sampled = int(settings.fraction_train * clients + 1e-9)
    if settings.compares == "clients" and clients > MOST_COMPARED:
        return [
            f"num_clients={clients}: {config.strategy.name} compares every pair of clients, of which the server can "
            f"hold {MOST_COMPARED}; use fewer, or a strategy that compares clients with models (clove, ifca)."
        ]
    if (settings.compares == "participants" or config.first_round == "update") and sampled > MOST_COMPARED:
        asks = config.strategy.name if settings.compares else "first_round=update"
        return [
            f"num_clients={clients}: {asks} compares every pair of a round's participants ({sampled}), of which the "
            f"server can hold {MOST_COMPARED}; lower strategy.fraction_train to "
            f"{math.floor(1e6 * MOST_COMPARED / clients) / 1e6:g}."
        ]
    return []


def _models(config: Config) -> list[str]:
    """Check K, which only strategies with several models use: FedAvg has one model and Local-only one per client."""
    settings = config.strategy.settings
    if settings.one_model:
        return []
    own = config.task.partition == OWN
    if config.k == "auto":
        if not settings.finds_k:
            able = " or ".join(f"strategy={name}" for name, other in usable_settings().items() if other.finds_k)
            return [f"k=auto: strategy {config.strategy.name} cannot find K; give an integer, or use {able}."]
        if settings.grows:
            return []
        name, number = "k_max", config.k_max
    else:
        name, number = "k", config.k
    problems = [f"{name}={number}: must be at least 1."] if number < 1 else []
    # Of nodes with data of their own the number is known only where they are looked for: `check_own_clients`.
    if number > config.num_clients >= 1 and not own:
        problems.append(_too_many_models(name, number, config.num_clients, f"num_clients={config.num_clients}"))
    return problems


def _too_many_models(name: str, number: int, clients: int, counted: str) -> str:
    return f"{name}={number}: more models than clients ({counted}); use {name} of at most {clients}, or more clients."


def check_own_clients(config: Config, folders: int | None = None) -> None:
    """Hold k to the number of nodes with data of their own, once it is known; k=auto finds no more than there are.

    Parameters
    ----------
    folders
        Number of the nodes' folders in `data_dir`, in process; None: real nodes, as many as `min_clients` or more.

    Raises
    ------
    ConfigError
        If there are fewer than models, or than the run needs to start.
    """
    if config.task.partition != OWN:
        return
    name, needed = _expected(config)
    problems = []
    if folders is not None and folders < needed:
        problems.append(
            f"{name}={needed}: data_dir={config.data_dir} holds folders for {folders} alone; use min_clients of at "
            f"most {folders}, or add folders."
        )
    elif config.k != "auto" and not config.strategy.settings.one_model:
        known = needed if folders is None else folders
        if config.k > known:
            counted = f"{name}={needed}" if folders is None else f"{folders} folders in data_dir"
            problems.append(_too_many_models("k", config.k, known, counted))
    if problems:
        raise ConfigError(problems)


def _train(config: Config) -> list[str]:
    train = config.train
    problems = _schedule(train)
    if train.class_weights != "none" and config.task.loss != "cross_entropy":
        problems.append(
            f"train.class_weights={train.class_weights}: weighs classes, and task.loss={config.task.loss} has none; "
            "use train.class_weights=none."
        )
    if train.momentum > 0 and train.optimizer not in ("sgd", "rmsprop"):
        problems.append(
            f"train.momentum={show(train.momentum)}: {train.optimizer} takes no momentum; add train.optimizer=sgd, "
            "or leave it out."
        )
    if train.optimizer_options and config.averaging == "gradients" and config.fine_tune_epochs == 0:
        problems.append(
            f"train.optimizer_options={show(train.optimizer_options)}: with averaging=gradients clients send "
            "gradients and take no steps; leave it out, or use averaging=models."
        )
    if train.weight_decay > 0 and train.optimizer == "rprop":
        problems.append(
            f"train.weight_decay={show(train.weight_decay)}: rprop has none; leave it out, or add another "
            "train.optimizer."
        )
    return problems


_SCHEDULE_NEEDS = {
    "constant": ((), ()),
    "step": (("schedule_rounds", "schedule_factor"), ()),
    "exponential": (("schedule_factor",), ()),
    "cosine": ((), ("schedule_rounds", "schedule_factor")),
    "inverse_sqrt": ((), ("schedule_rounds",)),
}
"""By schedule: the keys that it needs, and further keys that it takes."""


def _schedule(train: Training) -> list[str]:
    needs, takes = _SCHEDULE_NEEDS[train.schedule]
    problems = []
    for name in ("schedule_rounds", "schedule_factor"):
        value = getattr(train, name)
        if value is None and name in needs:
            problems.append(f"train.schedule={train.schedule}: needs train.{name}; add it.")
        elif value is not None and name not in (*needs, *takes):
            problems.append(
                f"train.{name}={show(value)}: has no effect with train.schedule={train.schedule}; leave it out."
            )
    return problems


def _task(task: TaskConfig) -> list[str]:
    """Check what is known of the tasks' own names; names as such are resolved where tasks are built."""
    problems = class_problems(task.data_options) if task.data == OWN else []
    if task.partition == OWN:
        if task.num_clusters != 0:
            problems.append(
                f"task.num_clusters={task.num_clusters}: with task.partition=own the clusters are not known; use "
                "task.num_clusters=0. Nodes may state theirs as true-cluster in their node config."
            )
    elif task.num_clusters < 0 or (
        task.num_clusters == 0 and ":" not in task.partition and task.partition not in (NATURAL, FLOWER)
    ):
        problems.append(
            f"task.num_clusters={task.num_clusters}: partition {task.partition} makes known clusters, "
            "at least 1 of them."
        )
    if task.model == AUTO and task.partition != OWN:
        problems.append("task.model=auto: only nodes with data of their own have it chosen; name a model.")
    reconstructs = task.model.endswith("autoencoder")
    if reconstructs != (task.loss == "reconstruction") and ":" not in task.model:
        remedy = "task.loss=reconstruction" if reconstructs else "task.model=autoencoder"
        problems.append(
            f"task.loss={task.loss}: does not fit task.model={task.model}; reconstruction and autoencoder "
            f"go together. Use {remedy}."
        )
    elif ":" not in task.data and task.data != HUGGING_FACE and task.loss != "reconstruction":
        regression = task.loss in ("squared_error", "half_squared_error")
        of_own = task.data_options.get("regression") is True or (regression and task.table.regression is True)
        values = of_own if task.data == OWN else task.data in _REGRESSIONS
        if regression != values:
            fitting = "squared_error" if values else "cross_entropy"
            remedy = f"use task.loss={fitting}"
            if task.data == OWN:
                remedy += f", or task.data_options.regression={show(regression)} (of tables task.table.regression)"
            problems.append(f"task.loss={task.loss}: does not fit task.data={task.data}; {remedy}.")
    return problems
