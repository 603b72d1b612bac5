"""From a checked configuration to the objects of a run: strategy, first models, message settings."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord

from conf.run_config import task_spec
from conf.schema import ONE_MODEL, CloveStrategy, Config, FedAvgStrategy, FedProxStrategy, IfcaStrategy, LocalStrategy
from strategies.averaging import Averaging, GradientAveraging, ModelAveraging
from strategies.base import ClusteredStrategy
from strategies.clove import Clove
from strategies.core.orthonormal import orthonormal_rows
from strategies.fedavg import FedAvg
from strategies.fedprox import FedProx
from strategies.ifca import Ifca
from strategies.local import Local
from task.fingerprint import project_fingerprint
from task.initial import initial_models
from task.task import Task, TaskSpec
from task.wire import Layout, bank, kinds


def build_task(config: Config) -> Task:
    """Return the task of a configuration."""
    return Task(TaskSpec(**task_spec(config)))


def build_strategy(config: Config) -> ClusteredStrategy:
    """Return the strategy of a configuration, ready to start."""
    own = config.strategy
    common: dict[str, Any] = {
        "num_clients": config.num_clients,
        "seed": config.seed,
        "fraction_train": own.fraction_train,
        "eval_every": config.eval_every,
        "min_clients": config.min_clients,
        "quorum": config.quorum,
        "start_timeout": config.start_timeout,
        "round_timeout": config.round_timeout,
        "grace": config.grace,
        "round_tries": config.round_tries,
        "fingerprint": project_fingerprint(),
    }
    if isinstance(own, LocalStrategy):
        return Local(**common)
    common["shared_layers"] = own.shared_layers
    if isinstance(own, FedProxStrategy):
        return FedProx(proximal_mu=own.proximal_mu, **common)
    if isinstance(own, CloveStrategy | IfcaStrategy):
        common["averaging"] = _averaging(own, config.train.learning_rate)
        common["first_round"] = own.first_round
    if isinstance(own, IfcaStrategy):
        return Ifca(**common)
    if isinstance(own, CloveStrategy):
        return Clove(
            k=config.k,
            clustering=own.clustering,
            choose_k=own.choose_k,
            k_min_improvement=own.k_min_improvement,
            matching=own.matching,
            square_root=own.square_root,
            stop_when_stable=own.stop_when_stable,
            stability_rounds=own.stability_rounds,
            stability_fraction=own.stability_fraction,
            reassign_unstable=own.reassign_unstable,
            memory=own.memory,
            absurd_loss=own.absurd_loss,
            **common,
        )
    if isinstance(own, FedAvgStrategy):
        return FedAvg(**common)
    raise ValueError(f"strategy {own.name!r} is not built here; add it to server_app/build.py")


def build_models(config: Config, task: Task) -> ArrayRecord:
    """Return the first K models: K = `k`, or `k_max` for k=auto, or 1 for strategies without clusters.

    Raises
    ------
    ValueError
        If more orthonormal models are wanted than a model has parameters.
    """
    own = config.strategy
    count, how = 1, getattr(own, "init", "different")
    if not isinstance(own, ONE_MODEL):
        count = config.k_max if config.k == "auto" else config.k
    states = initial_models(task.build_model, count, "same" if how == "same" else "different", config.seed)
    records = [ArrayRecord({name: Array(array) for name, array in state.items()}) for state in states]
    layout = Layout.of(records[0])
    values = np.stack([layout.flatten(record) for record in records])
    if how == "orthonormal":
        # Counters and running statistics are no directions: they keep their values.
        parameters = {name for name, _ in task.build_model().named_parameters()}
        trained = layout.mask(name for name in states[0] if name in parameters)
        values[:, trained] = orthonormal_rows(values[:, trained])
    return bank.pack(values, layout)


def message_settings(config: Config, task: Task) -> ConfigRecord:
    """Return the settings that travel with every message."""
    train = config.train
    return ConfigRecord(
        {
            kinds.TASK: task.spec.to_json(),
            kinds.SEED: config.seed,
            kinds.DEVICE: config.device,
            kinds.LEARNING_RATE: train.learning_rate,
            kinds.LOCAL_EPOCHS: train.local_epochs,
            kinds.BATCH_SIZE: train.batch_size,
            kinds.OPTIMIZER: train.optimizer,
            kinds.MOMENTUM: train.momentum,
            kinds.WEIGHT_DECAY: train.weight_decay,
        }
    )


def _averaging(own: CloveStrategy | IfcaStrategy, learning_rate: float) -> Averaging:
    if own.averaging == "models":
        return ModelAveraging(own.normaliser)
    return GradientAveraging(
        learning_rate=learning_rate if own.server_learning_rate is None else own.server_learning_rate,
        normaliser=own.normaliser,
        optimizer=own.server_optimizer,
        batch=0 if own.gradient_batch == "full" else own.gradient_batch,
    )
