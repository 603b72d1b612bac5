"""From a checked configuration to the objects of a run: strategy, first models, message settings."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord

from florets.conf.run_config import task_spec
from florets.conf.schema import (
    ONE_MODEL,
    CflGpStrategy,
    CloveStrategy,
    Config,
    FedAvgStrategy,
    FedProxStrategy,
    IfcaStrategy,
    KFedStrategy,
    LocalStrategy,
    ModelsOrGradients,
    OneShotStrategy,
    OracleStrategy,
    TwoPhaseStrategy,
)
from florets.strategies.base.averaging import Averaging, GradientAveraging, ModelAveraging
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.cfl_gp.strategy import CflGp
from florets.strategies.cfl_gp.upload import Upload
from florets.strategies.clove.strategy import Clove
from florets.strategies.core import FloatArray
from florets.strategies.core.orthonormal import orthonormal_rows
from florets.strategies.fedavg import FedAvg
from florets.strategies.fedprox.strategy import FedProx
from florets.strategies.ifca import Ifca
from florets.strategies.k_fed.strategy import KFed
from florets.strategies.local import Local
from florets.strategies.one_shot.strategy import OneShot
from florets.strategies.oracle.strategy import Oracle
from florets.strategies.two_phase.descent_settings import DescentSettings
from florets.strategies.two_phase.refine import Refinement
from florets.strategies.two_phase.strategy import TwoPhase
from florets.strategies.two_phase.subspace import SubspaceSettings
from florets.task.fingerprint import project_fingerprint
from florets.task.initial import initial_models
from florets.task.kmeans import num_features
from florets.task.task import Task, TaskSpec
from florets.task.wire import Layout, bank, kinds


def build_task(config: Config) -> Task:
    """Return the task of a configuration."""
    return Task(TaskSpec(**task_spec(config)))


def build_strategy(config: Config, task: Task) -> ClusteredStrategy:
    """Return the strategy of a configuration, ready to start on its task."""
    own = config.strategy
    common: dict[str, Any] = {
        # Simulated clients are exactly as many; of nodes with data of their own more may come.
        "num_clients": None if config.task.partition == "own" else config.num_clients,
        "min_clients": config.num_clients if config.min_clients is None else config.min_clients,
        "seed": config.seed,
        "fraction_train": own.fraction_train,
        "eval_every": config.eval_every,
        "eval_clients": config.eval_clients,
        "quorum": config.quorum,
        "start_timeout": config.start_timeout,
        "round_timeout": config.round_timeout,
        "grace": config.grace,
        "round_tries": config.round_tries,
        "fingerprint": project_fingerprint(),
    }
    if isinstance(own, LocalStrategy):
        return Local(**common)
    if isinstance(own, TwoPhaseStrategy):
        return TwoPhase(descent=_descent(own), refinement=_refinement(own, config.train.learning_rate), **common)
    common["shared_layers"] = own.shared_layers
    if isinstance(own, FedProxStrategy):
        return FedProx(proximal_mu=own.proximal_mu, **common)
    if isinstance(own, OneShotStrategy):
        return OneShot(estimate=own.estimate, estimate_epochs=own.estimate_epochs, **common)
    if isinstance(own, KFedStrategy):
        length = num_features(task.input_shape, task.num_outputs, own.features)
        return KFed(num_features=length, local_clusters=own.local_clusters, features=own.features, **common)
    if isinstance(own, ModelsOrGradients):
        common["averaging"] = _averaging(own, config.train.learning_rate)
    if isinstance(own, OracleStrategy):
        return Oracle(mode=own.mode, **common)
    if isinstance(own, CloveStrategy | IfcaStrategy):
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
    if isinstance(own, CflGpStrategy):
        return _cfl_gp(own, config, common)
    if isinstance(own, FedAvgStrategy):
        return FedAvg(**common)
    raise ValueError(f"strategy {own.name!r} is not built here; add it to server_app/build.py")


def build_models(config: Config, task: Task) -> ArrayRecord:
    """Return the first K models: K = `k`, or `k_max` for k=auto, or 1 for strategies without clusters.

    Raises
    ------
    ValueError
        If more orthonormal models are wanted than a model has parameters, or the task has no true models of this
        number and size where they are the start.
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
    if isinstance(own, OracleStrategy) and own.mode == "true_start":
        values = _true_models(task, values.shape)
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


def _descent(own: TwoPhaseStrategy) -> DescentSettings:
    return DescentSettings(
        rounds=own.moment_rounds,
        anchors=own.anchors,
        min_anchor_examples=own.min_anchor_examples,
        subspace=SubspaceSettings(own.subspace, own.inner_steps, own.pairing, own.noise),
        subspace_clients=own.subspace_clients,
        fresh=own.fresh,
        alpha=own.alpha,
        beta=own.beta,
        epsilon=own.epsilon,
        delta=own.delta,
        grouping=own.grouping,
    )


def _refinement(own: TwoPhaseStrategy, learning_rate: float) -> Refinement:
    proximal_mu = 1 / learning_rate if own.local_solver == "fedprox" else 0.0
    return Refinement(own.labels, own.temperature, own.normaliser, proximal_mu)


def _true_models(task: Task, shape: tuple[int, ...]) -> FloatArray:
    found = task.data.true_models
    if found is None:
        raise ValueError(
            f"strategy.mode=true_start: data {task.spec.data!r} has no true models to start from; use "
            "strategy.mode=labels."
        )
    if found.shape != shape:
        raise ValueError(
            f"strategy.mode=true_start: data {task.spec.data!r} has {found.shape[0]} true models of {found.shape[1]} "
            f"parameters, but the run has k={shape[0]} models of {shape[1]}; set k={found.shape[0]} and a task.model "
            "of that size."
        )
    return found.astype(np.float64)


def _averaging(own: ModelsOrGradients, learning_rate: float) -> Averaging:
    if own.averaging == "models":
        return ModelAveraging(own.normaliser)
    return GradientAveraging(
        learning_rate=learning_rate if own.server_learning_rate is None else own.server_learning_rate,
        normaliser=own.normaliser,
        optimizer=own.server_optimizer,
        batch=0 if own.gradient_batch == "full" else own.gradient_batch,
    )


def _cfl_gp(own: CflGpStrategy, config: Config, common: dict[str, Any]) -> CflGp:
    batch = config.train.batch_size if own.gradient_batch is None else own.gradient_batch
    averaging: Averaging = ModelAveraging(own.normaliser)
    if own.averaging == "gradients":
        size = 0 if batch == "full" else batch
        averaging = GradientAveraging(config.train.learning_rate, own.normaliser, batch=size)
    return CflGp(
        k=config.k,
        period=own.period,
        initial_groups=own.initial_groups,
        cluster_rounds=own.cluster_rounds,
        stop_unchanged=own.stop_unchanged,
        running_mean=own.running_mean,
        k_warmup=own.k_warmup,
        upload=Upload(
            own.compression, tuple(own.profile_layers), own.quantise, own.quantise_digits, seed=config.seed
        ),
        averaging=averaging,
        **common,
    )
