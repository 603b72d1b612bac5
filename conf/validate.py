"""Ranges and combinations: what can be refused without looking at any data."""

import math
import re
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.ranges import above_zero, at_least, share
from florets.conf.schema import (
    ONE_MODEL,
    CflGpStrategy,
    CloveStrategy,
    Config,
    FedProxStrategy,
    ModelsOrGradients,
    TaskConfig,
    TwoPhaseStrategy,
)
from florets.conf.typed import show
from florets.conf.validate_baselines import baseline_problems
from florets.conf.validate_cfl_gp import cfl_gp_problems
from florets.conf.validate_two_phase import two_phase_problems

_REGRESSIONS = ("linear", "lines")
OWN = "own"
_PRESET = re.compile(r"\w+(?:[/.-]\w+)*", re.ASCII)
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def validate(config: Config) -> Config:
    """Return `config` unchanged when it can run.

    Raises
    ------
    ConfigError
        With every value out of its range and every impossible combination.
    """
    problems = find_problems(config)
    if problems:
        raise ConfigError(problems)
    return config


def find_problems(config: Config) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    return [
        *_run(config),
        *_participation(config),
        *_models(config),
        *_strategy(config),
        *baseline_problems(config),
        *_train(config),
        *_task(config.task),
    ]


def _run(config: Config) -> list[str]:
    problems = at_least(0, seed=config.seed)
    # The name becomes a path of the results: it must not lead out of their folder.
    if not _PRESET.fullmatch(config.experiment):
        problems.append(f"experiment={config.experiment}: must be a preset's name, such as clove/linear.")
    if config.seed >= 2**63:
        problems.append(f"seed={config.seed}: must be less than 2**63, the largest number that a message can hold.")
    problems += at_least(
        1, num_clients=config.num_clients, num_rounds=config.num_rounds, eval_every=config.eval_every
    )
    problems += above_zero([("start_timeout", config.start_timeout), ("round_timeout", config.round_timeout)])
    problems += _nodes(config)
    problems += _faults(config)
    if not _DEVICE.fullmatch(config.device):
        problems.append(f"device={config.device}: must be cpu, cuda or cuda:<number>.")
    for name, folder in (("data_dir", config.data_dir), ("results_dir", config.results_dir)):
        if not folder.strip():
            problems.append(f"{name}: must name a folder; leave the key out for the default.")
    if config.cluster_test and config.task.num_clusters == 0:
        problems.append(
            "cluster_test=true: tests on each true cluster, and this task has none (task.num_clusters=0); leave "
            "cluster_test out, or give the true number as task.num_clusters."
        )
    if config.stop_at_ari is not None:
        if not 0 < config.stop_at_ari <= 1:
            problems.append(f"stop_at_ari={show(config.stop_at_ari)}: must be greater than 0 and at most 1.")
        if config.task.num_clusters == 0 and config.task.partition != OWN:
            problems.append(
                f"stop_at_ari={show(config.stop_at_ari)}: the ARI compares with the true clusters, and this task has "
                "none (task.num_clusters=0); leave stop_at_ari out, or give the true number as task.num_clusters."
            )
    return problems


def _faults(config: Config) -> list[str]:
    """Check what happens where clients fail, and what a run can be resumed from."""
    problems = share("quorum", config.quorum)
    problems += at_least(1, round_tries=config.round_tries, checkpoint_keep=config.checkpoint_keep)
    problems += at_least(0, checkpoint_every=config.checkpoint_every)
    if config.grace is not None:
        problems += at_least(0, grace=config.grace)
    return problems


def _nodes(config: Config) -> list[str]:
    """Check how many clients a run waits for; of nodes with data of their own nobody knows how many will come."""
    least = config.min_clients
    problems = [] if least is None else at_least(1, min_clients=least)
    if config.task.partition != OWN:
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
    rho, (name, clients) = config.strategy.fraction_train, _expected(config)
    problems = share("strategy.fraction_train", rho)
    # The tolerance lets 1/3 of 3 clients be one client in spite of rounding.
    if not problems and clients >= 1 and rho * clients < 1 - 1e-9:
        problems.append(
            f"strategy.fraction_train={show(rho)}: of {name}={clients} no client would take part "
            f"in a round; use at least {1 / clients:.4g}, or more clients."
        )
    if config.task.num_clusters > clients >= 1:
        problems.append(
            f"{name}={clients}: the task has task.num_clusters={config.task.num_clusters} clusters "
            "and each needs a client; use more clients or fewer clusters."
        )
    return problems


def _models(config: Config) -> list[str]:
    """Check K, which only strategies with several models use: FedAvg has one model and Local-only one per client."""
    strategy = config.strategy
    if isinstance(strategy, ONE_MODEL):
        return []
    if config.k == "auto":
        if not isinstance(strategy, CloveStrategy | CflGpStrategy):
            return [
                f"k=auto: strategy {strategy.name} cannot find K; give a whole number, "
                "or use strategy=clove or strategy=cfl_gp."
            ]
        name, number = "k_max", config.k_max
    else:
        name, number = "k", config.k
    problems = at_least(1, **{name: number})
    counted, clients = _expected(config)
    if number > clients >= 1:
        problems.append(
            f"{name}={number}: more models than clients ({counted}={clients}); "
            f"use {name} of at most {clients}, or more clients."
        )
    return problems


def _strategy(config: Config) -> list[str]:
    strategy = config.strategy
    problems = []
    if isinstance(strategy, FedProxStrategy):
        problems += at_least(0, **{"strategy.proximal_mu": strategy.proximal_mu})
    if isinstance(strategy, TwoPhaseStrategy):
        problems += two_phase_problems(config, strategy)
    if isinstance(strategy, ModelsOrGradients):
        if strategy.gradient_batch != "full":
            problems += at_least(1, **{"strategy.gradient_batch": strategy.gradient_batch})
        if strategy.server_learning_rate is not None:
            problems += above_zero([("strategy.server_learning_rate", strategy.server_learning_rate)])
        problems += _gradients_only(strategy)
    if isinstance(strategy, CloveStrategy):
        if not -1 < strategy.k_min_improvement < math.inf:
            problems.append(
                f"strategy.k_min_improvement={strategy.k_min_improvement}: must be greater than -1; 0 takes any gain."
            )
        problems += at_least(1, **{"strategy.stability_rounds": strategy.stability_rounds})
        problems += share("strategy.stability_fraction", strategy.stability_fraction)
        if strategy.absurd_loss is not None and not strategy.absurd_loss >= 1:
            problems.append(
                f"strategy.absurd_loss={show(strategy.absurd_loss)}: must be at least 1; null leaves nobody out."
            )
    if isinstance(strategy, CflGpStrategy):
        problems += cfl_gp_problems(strategy, config)
    return problems


def _gradients_only(strategy: ModelsOrGradients) -> list[str]:
    """Refuse settings that would silently do nothing while models are averaged."""
    if strategy.averaging == "gradients":
        return []
    idle: dict[str, Any] = {
        "gradient_batch": strategy.gradient_batch != "full",
        "server_learning_rate": strategy.server_learning_rate is not None,
        "server_optimizer": strategy.server_optimizer != "sgd",
    }
    return [
        f"strategy.{name}={show(getattr(strategy, name))}: has an effect only with strategy.averaging=gradients; "
        "add that, or leave it out."
        for name, given in idle.items()
        if given
    ]


def _train(config: Config) -> list[str]:
    train = config.train
    problems = above_zero([("train.learning_rate", train.learning_rate)])
    problems += at_least(1, **{"train.local_epochs": train.local_epochs, "train.batch_size": train.batch_size})
    problems += at_least(0, **{"train.weight_decay": train.weight_decay})
    if not 0 <= train.momentum < 1:
        problems.append(f"train.momentum={show(train.momentum)}: must be at least 0 and less than 1.")
    elif train.momentum > 0 and train.optimizer != "sgd":
        problems.append(
            f"train.momentum={show(train.momentum)}: {train.optimizer} takes no momentum; add train.optimizer=sgd, "
            "or leave it out."
        )
    return problems


def _task(task: TaskConfig) -> list[str]:
    """Check what is known of the tasks' own names; names as such are resolved where tasks are built."""
    problems = []
    if task.partition == OWN:
        if task.num_clusters != 0:
            problems.append(
                f"task.num_clusters={task.num_clusters}: with task.partition=own the clusters are not known; use "
                "task.num_clusters=0. Nodes may state theirs as true-cluster in their node config."
            )
    elif task.num_clusters < 0 or (task.num_clusters == 0 and ":" not in task.partition):
        problems.append(
            f"task.num_clusters={task.num_clusters}: partition {task.partition} makes known clusters, "
            "at least 1 of them."
        )
    if (task.model == "autoencoder") != (task.loss == "reconstruction") and ":" not in task.model:
        remedy = "task.loss=reconstruction" if task.model == "autoencoder" else "task.model=autoencoder"
        problems.append(
            f"task.loss={task.loss}: does not fit task.model={task.model}; reconstruction and autoencoder "
            f"go together. Use {remedy}."
        )
    elif ":" not in task.data and task.loss != "reconstruction":
        regression = task.loss in ("squared_error", "half_squared_error")
        values = task.data_options.get("regression") is True if task.data == OWN else task.data in _REGRESSIONS
        if regression != values:
            fitting = "squared_error" if values else "cross_entropy"
            remedy = f"use task.loss={fitting}"
            if task.data == OWN:
                remedy += f", or task.data_options.regression={show(regression)}"
            problems.append(f"task.loss={task.loss}: does not fit task.data={task.data}; {remedy}.")
    return problems
