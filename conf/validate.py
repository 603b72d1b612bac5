"""Ranges and combinations: what can be refused without looking at any data."""

import math
import re
from collections.abc import Sequence
from typing import Any

from conf.problems import ConfigError
from conf.schema import ONE_MODEL, CloveStrategy, Config, FedProxStrategy, IfcaStrategy, TaskConfig
from conf.typed import show

_REGRESSIONS = ("linear", "lines")
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
        *_train(config),
        *_task(config.task),
    ]


def _at_least(least: float, **values: float) -> list[str]:
    return [f"{name}={show(value)}: must be at least {least}." for name, value in values.items() if value < least]


def _above_zero(named: Sequence[tuple[str, float]]) -> list[str]:
    return [f"{name}={show(value)}: must be greater than 0." for name, value in named if value <= 0]


def _share(name: str, value: float) -> list[str]:
    if 0 < value <= 1:
        return []
    return [f"{name}={show(value)}: is a share, greater than 0 and at most 1; {name}=1.0 means all."]


def _run(config: Config) -> list[str]:
    problems = _at_least(0, seed=config.seed)
    # The name becomes a path of the results: it must not lead out of their folder.
    if not _PRESET.fullmatch(config.experiment):
        problems.append(f"experiment={config.experiment}: must be a preset's name, such as clove/linear.")
    if config.seed >= 2**63:
        problems.append(f"seed={config.seed}: must be less than 2**63, the largest number that a message can hold.")
    problems += _at_least(
        1, num_clients=config.num_clients, num_rounds=config.num_rounds, eval_every=config.eval_every
    )
    problems += _above_zero([("start_timeout", config.start_timeout), ("round_timeout", config.round_timeout)])
    problems += _faults(config)
    if not _DEVICE.fullmatch(config.device):
        problems.append(f"device={config.device}: must be cpu, cuda or cuda:<number>.")
    for name, folder in (("data_dir", config.data_dir), ("results_dir", config.results_dir)):
        if not folder.strip():
            problems.append(f"{name}: must name a folder; leave the key out for the default.")
    if config.stop_at_ari is not None:
        if not 0 < config.stop_at_ari <= 1:
            problems.append(f"stop_at_ari={show(config.stop_at_ari)}: must be greater than 0 and at most 1.")
        if config.task.num_clusters == 0:
            problems.append(
                f"stop_at_ari={show(config.stop_at_ari)}: the ARI compares with the true clusters, and this task has "
                "none (task.num_clusters=0); leave stop_at_ari out, or give the true number as task.num_clusters."
            )
    return problems


def _faults(config: Config) -> list[str]:
    """Check what happens where clients fail, and what a run can be resumed from."""
    problems = _share("quorum", config.quorum)
    problems += _at_least(1, round_tries=config.round_tries, checkpoint_keep=config.checkpoint_keep)
    problems += _at_least(0, checkpoint_every=config.checkpoint_every)
    if config.grace is not None:
        problems += _at_least(0, grace=config.grace)
    if config.min_clients is not None and not 1 <= config.min_clients <= config.num_clients:
        problems.append(
            f"min_clients={config.min_clients}: must be from 1 to num_clients={config.num_clients}; null means all."
        )
    return problems


def _participation(config: Config) -> list[str]:
    rho = config.strategy.fraction_train
    problems = _share("strategy.fraction_train", rho)
    # The tolerance lets 1/3 of 3 clients be one client in spite of rounding.
    if not problems and config.num_clients >= 1 and rho * config.num_clients < 1 - 1e-9:
        least = 1 / config.num_clients
        problems.append(
            f"strategy.fraction_train={show(rho)}: of num_clients={config.num_clients} no client would take part "
            f"in a round; use at least {least:.4g}, or more clients."
        )
    if config.task.num_clusters > config.num_clients >= 1:
        problems.append(
            f"num_clients={config.num_clients}: the task has task.num_clusters={config.task.num_clusters} clusters "
            "and each needs a client; use more clients or fewer clusters."
        )
    return problems


def _models(config: Config) -> list[str]:
    """Check K, which only strategies with several models use: FedAvg has one model and Local-only one per client."""
    strategy = config.strategy
    if isinstance(strategy, ONE_MODEL):
        return []
    if config.k == "auto":
        if not isinstance(strategy, CloveStrategy):
            return [f"k=auto: strategy {strategy.name} cannot find K; give a whole number, or use strategy=clove."]
        name, number = "k_max", config.k_max
    else:
        name, number = "k", config.k
    problems = _at_least(1, **{name: number})
    if number > config.num_clients >= 1:
        problems.append(
            f"{name}={number}: more models than clients (num_clients={config.num_clients}); "
            f"use {name} of at most {config.num_clients}, or more clients."
        )
    return problems


def _strategy(config: Config) -> list[str]:
    strategy = config.strategy
    problems = []
    if isinstance(strategy, FedProxStrategy):
        problems += _at_least(0, **{"strategy.proximal_mu": strategy.proximal_mu})
    if isinstance(strategy, CloveStrategy | IfcaStrategy):
        if strategy.gradient_batch != "full":
            problems += _at_least(1, **{"strategy.gradient_batch": strategy.gradient_batch})
        if strategy.server_learning_rate is not None:
            problems += _above_zero([("strategy.server_learning_rate", strategy.server_learning_rate)])
        problems += _gradients_only(strategy)
    if isinstance(strategy, CloveStrategy):
        if not -1 < strategy.k_min_improvement < math.inf:
            problems.append(
                f"strategy.k_min_improvement={strategy.k_min_improvement}: must be greater than -1; 0 takes any gain."
            )
        problems += _at_least(1, **{"strategy.stability_rounds": strategy.stability_rounds})
        problems += _share("strategy.stability_fraction", strategy.stability_fraction)
        if strategy.absurd_loss is not None and strategy.absurd_loss < 1:
            problems.append(
                f"strategy.absurd_loss={show(strategy.absurd_loss)}: must be at least 1; null leaves nobody out."
            )
    return problems


def _gradients_only(strategy: CloveStrategy | IfcaStrategy) -> list[str]:
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
    problems = _above_zero([("train.learning_rate", train.learning_rate)])
    problems += _at_least(1, **{"train.local_epochs": train.local_epochs, "train.batch_size": train.batch_size})
    problems += _at_least(0, **{"train.weight_decay": train.weight_decay})
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
    if task.num_clusters < 0 or (task.num_clusters == 0 and ":" not in task.partition):
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
        if regression != (task.data in _REGRESSIONS):
            fitting = "squared_error" if task.data in _REGRESSIONS else "cross_entropy"
            problems.append(f"task.loss={task.loss}: does not fit task.data={task.data}; use task.loss={fitting}.")
    return problems
