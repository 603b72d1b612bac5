"""From a checked configuration to the objects of a run: strategy, initial models, message settings."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord

from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.schema import Config
from florets.strategies.base.models import Models, orthonormal_rows, untrained_of
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.strategies.registry import strategy_class
from florets.strategies.settings import RunKeys
from florets.task.fingerprint import code_fingerprint
from florets.task.layers import at_home_hash, untrained_entries
from florets.task.registry import OwnCodeFailed
from florets.task.task import Task, TaskSpec, initial_models
from florets.task.training import dp_sgd
from florets.task.training.scores import measure_function
from florets.task.wire import Layout, bank, kinds

log = logging.getLogger("florets")

_kept: list[Task] | None = None
"""The last task that was built, within `one_task_kept`; None: tasks are not kept."""


@contextmanager
def one_task_kept() -> Iterator[None]:
    """Within it `build_task` gives the last task again where that is the one asked for: its data are made once.

    For a process that runs several methods on the same data, one after the other.
    """
    global _kept
    before, _kept = _kept, []
    try:
        yield
    finally:
        _kept = before


def build_task(config: Config, table: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a configuration, with its `table` as the sites agreed on it; see `one_task_kept`."""
    spec = TaskSpec(**task_spec(config))
    if table:
        spec = replace(spec, table=dict(table))
    if _kept is None:
        return Task(spec)
    if not _kept or _kept[0].spec != spec:
        # First the old one's data make room.
        _kept.clear()
        _kept.append(Task(spec))
    return _kept[0]


def build_strategy(config: Config, task: Task) -> Strategy[Any, Any]:
    """Return the strategy of a configuration, ready to start on its task."""
    cls = strategy_class(config.strategy.name)
    run = {field.name: getattr(config, field.name) for field in fields(RunKeys)}
    if config.task.partition == "own":
        # Simulated clients are exactly as many; of nodes with data of their own more may come.
        run |= {"num_clients": None, "min_clients": config.min_clients or config.num_clients}
    strategy: Strategy[Any, Any] = cls(
        # Those of the configuration were read without importing the strategy.
        cls.Settings(**vars(config.strategy.settings)),
        RunKeys(**run),
        input_shape=task.input_shape,
        num_outputs=task.num_outputs,
        loss=config.task.loss,
        validation=config.task.validation_fraction > 0,
        fingerprint=code_fingerprint(cls.client_handlers),
    )
    if task.drifts:
        strategy.federation.known_at = partial(_known_at, task)
    return strategy


def build_checked(config: Config, task: Task) -> tuple[Strategy[Any, Any], Models, ConfigRecord]:
    """Return the strategy, its initial models and the messages' settings; ConfigError where they do not fit."""
    with refused():
        task.check()
        if config.privacy.hides_records:
            # What local training takes from Opacus is tried before clients are asked for it.
            dp_sgd.check(task.build_model(), task.input_shape, task.two_examples[1], config.task.loss)
        if ":" in config.measure:
            measure_function(config.measure)
        strategy = build_strategy(config, task)
        settings = message_settings(config, task)
        models = Models(build_models(config, task), strategy.shared_layers, untrained_of(settings))
        strategy.check(models)
    return strategy, models, settings


@contextmanager
def refused() -> Iterator[None]:
    """Tell what a task or a strategy says of wrong values as the configuration's problem."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        # Of a user's own function its traceback is of use.
        raise ConfigError(str(error)) from (error.__cause__ if isinstance(error, OwnCodeFailed) else None)


def _known_at(task: Task, client: Client, server_round: int) -> Client:
    """Return a client as the task has it in a round; one without a true cluster is not one of the simulation's."""
    if client.cluster is None or not 0 <= client.number < task.num_clients:
        return client
    return replace(
        client,
        cluster=task.cluster_of(client.number, server_round),
        num_examples=task.num_examples_of(client.number, server_round),
    )


def build_models(config: Config, task: Task) -> ArrayRecord:
    """Return the first K models: K = `k`, or `k_max` for k=auto, or 1 for strategies that need no more at first.

    Behind them are those that the strategy needs in addition (`Settings.extra_models`). ValueError if more
    orthonormal models are wanted than a model has parameters, or the task has no true models of this number and size.
    """
    settings = config.strategy.settings
    count, how = 1, settings.initial
    if not (settings.one_model or settings.grows):
        count = config.k_max if config.k == "auto" else config.k
    total = count + settings.extra_models
    states = initial_models(task.build_model, total, "different", config.seed)
    if how == "same":
        states[:count] = initial_models(task.build_model, count, "same", config.seed)
    records = [ArrayRecord({name: Array(array) for name, array in state.items()}) for state in states]
    layout = Layout.of(records[0])
    values = np.stack([layout.flatten(record) for record in records])
    if how == "orthonormal":
        # Counters and running statistics are no directions: they keep their values.
        parameters = {name for name, _ in task.build_model().named_parameters()}
        trained = layout.mask(name for name in states[0] if name in parameters)
        values[:, trained] = orthonormal_rows(values[:, trained])
    if how == "true":
        values = _true_models(task, values.shape)
    return bank.pack(values, layout)


def message_settings(config: Config, task: Task) -> ConfigRecord:
    """Return the settings that travel with every message."""
    settings = ConfigRecord(
        {
            kinds.TASK: task.spec.to_json(),
            kinds.SEED: config.seed,
            kinds.DEVICE: config.device,
            **config.train.record(),
        }
    )
    # Only what is there: every message costs its bytes.
    if config.privacy.is_local:
        # From the first message on: an introduction holds the number of examples.
        settings[kinds.PRIVACY] = config.privacy.kind
    module = task.module_to_load()
    if untrained := untrained_entries(module):
        settings[kinds.UNTRAINED] = untrained
    if frozen := at_home_hash(module):
        settings[kinds.AT_HOME] = frozen
    return settings


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
