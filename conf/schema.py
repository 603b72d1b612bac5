"""Every key of an experiment: its type, its default and what it does.

These dataclasses are the only place where keys and defaults are declared. `florets --help` prints the texts;
`florets.conf.typed` holds values to the types; `florets.conf.validate` holds them to their ranges.
"""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from florets.conf.key import key
from florets.conf.strategy_keys import (
    ONE_MODEL,
    STRATEGIES,
    CflGpStrategy,
    CloveStrategy,
    FedAvgStrategy,
    FedProxStrategy,
    IfcaStrategy,
    KFedStrategy,
    LocalStrategy,
    ModelsOrGradients,
    OneShotStrategy,
    OracleStrategy,
    StrategyConfig,
    TwoPhaseStrategy,
)

__all__ = [
    "ONE_MODEL",
    "OPTION_KEYS",
    "STRATEGIES",
    "CflGpStrategy",
    "CloveStrategy",
    "Config",
    "FedAvgStrategy",
    "FedProxStrategy",
    "IfcaStrategy",
    "KFedStrategy",
    "LocalStrategy",
    "ModelsOrGradients",
    "OneShotStrategy",
    "OracleStrategy",
    "StrategyConfig",
    "TaskConfig",
    "TrainConfig",
    "TwoPhaseStrategy",
    "key",
    "known_keys",
    "walk",
]


@dataclass(frozen=True)
class TaskConfig:
    """Data, how they are spread over clients, model and loss."""

    data: str = key(
        "digits",
        "digits, mnist, fashion_mnist, cifar10, linear, lines or own (your files), or a function as "
        "package.module:function",
    )
    partition: str = key(
        "rotation",
        "who holds what: rotation, rotation_blocks, rotated_anchors, label_skew_1 to label_skew_4, concept_shift, "
        "by_class, random_clusters, own (each node its own data), or an import path",
    )
    model: str = key("mlp", "model: mlp, cnn, linear or autoencoder, or an import path")
    loss: Literal["cross_entropy", "squared_error", "half_squared_error", "reconstruction"] = key(
        "cross_entropy", "loss per sample"
    )
    num_clusters: int = key(4, "true number of clusters of the partition; 0: not known (a partition of your own)")
    data_options: dict[str, Any] = key({}, "options of the data set's function")
    partition_options: dict[str, Any] = key({}, "options of the partition's function")
    model_options: dict[str, Any] = key({}, "options of the model's function")


@dataclass(frozen=True)
class TrainConfig:
    """Local training: what a client does in one round."""

    learning_rate: float = key(0.01, "step size")
    local_epochs: int = key(1, "passes over the client's data in one round")
    batch_size: int = key(100, "samples per step")
    optimizer: Literal["adam", "sgd"] = key("adam", "built anew for every round")
    momentum: float = key(0.0, "momentum of sgd")
    weight_decay: float = key(0.0, "L2 penalty")


@dataclass(frozen=True)
class Config:
    """One experiment, complete and checked."""

    experiment: str = key("quickstart", "name of the preset, a file in conf/experiment/")
    seed: int = key(0, "every draw of a run follows from it")
    k: int | Literal["auto"] = key(4, "number K of models; auto finds it (clove, cfl_gp)")
    k_max: int = key(10, "largest K that k=auto may find, and the number of models then")
    num_clients: int = key(20, "clients of the federation")
    num_rounds: int = key(10, "rounds of training; those of strategy.moment_rounds (two_phase) come before them")
    data_dir: str = key("data", "folder of data sets that come as files; relative to where florets is called")
    results_dir: str = key("results", "folder of results; relative to where florets is called")
    device: str = key("cpu", "cpu, cuda or cuda:<n>")
    engine: Literal["local", "flwr"] = key("local", "in this process (local), or through `flwr run` (flwr)")
    eval_every: int = key(1, "rounds between evaluations on test data; the last round is always evaluated")
    eval_clients: Literal["all", "participants"] = key("all", "who tests: all clients with a model, or the round's")
    cluster_test: bool = key(
        False,
        "at evaluations also test all K models on each true cluster's test data, on the server; simulation only",
    )
    stop_at_ari: float | None = key(None, "end the run once the ARI is at least this")
    quiet: bool = key(False, "plain lines in place of the progress bar")
    min_clients: int | None = key(
        None, "clients needed to start; null: num_clients. Of nodes with data of their own it is the only count"
    )
    quorum: float = key(0.5, "share of the clients asked whose usable replies a round needs; below it is repeated")
    start_timeout: float = key(
        120.0,
        "seconds to wait for the clients at the start, and later for any of them (of two_phase's anchors) "
        "where all have gone offline",
    )
    round_timeout: float = key(3600.0, "seconds to wait for the replies of an exchange; a round has one to three")
    grace: float | None = key(None, "seconds to wait for the rest once the quorum replied; null: round_timeout")
    round_tries: int = key(
        3, "how often a round below the quorum is tried before the run (two_phase: or its phase 1) ends"
    )
    checkpoint_every: int = key(
        1,
        "rounds between two checkpoints, from which resume=<run folder> goes on; 0: none. "
        "Those of cfl_gp are large (they hold the profile): write fewer with large models",
    )
    checkpoint_keep: int = key(2, "newest checkpoints that are kept")
    strategy: StrategyConfig = key(CloveStrategy(), "the algorithm and its keys")
    task: TaskConfig = key(TaskConfig(), "data, partition, model and loss")
    train: TrainConfig = key(TrainConfig(), "local training")


OPTION_KEYS = ("task.data_options", "task.partition_options", "task.model_options")
"""Keys whose value is a free mapping: the function that takes the options checks them."""


def walk(kind: type, prefix: str = "") -> Iterator[tuple[str, "dataclasses.Field[Any]"]]:
    """Yield the dotted name and the field of every key of a dataclass, in order, strategies left out."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from walk(hints[field.name], f"{prefix}{field.name}.")
        elif field.name != "strategy":
            yield f"{prefix}{field.name}", field


def known_keys(strategy: str) -> list[str]:
    """Return every dotted key of an experiment with the given strategy."""
    own = [name for name, _ in walk(STRATEGIES[strategy], "strategy.")]
    return [name for name, _ in walk(Config)] + own
