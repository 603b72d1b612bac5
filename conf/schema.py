"""Every key of an experiment: its type, its default and what it does.

These dataclasses, and the `Settings` of each strategy, are the only place where keys, defaults and ranges are
declared. `florets --help` prints the texts; typed.py holds values to types, validate.py to ranges.
"""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from florets.strategies.registry import DEFAULT, settings_type
from florets.strategies.settings import RunKeys, Settings
from florets.task.keys import setting, type_hints
from florets.task.training.settings import Training

AUTO = "auto"
"""Of `task.model`: chosen once the nodes have described their data."""


@dataclass(frozen=True)
class DriftConfig:
    """Groups that change during the run, in simulation; `florets.task.drift.Drift` reads the same keys."""

    rounds: list[int] = setting([], "rounds in which clients' data begin to change, from 2; none: they never do")
    kind: Literal["sudden", "gradual", "returning"] = setting(
        "sudden",
        "sudden: all data are new at once; gradual: a part more in each of task.drift.span rounds; returning: "
        "sudden, and after that span all is as before",
    )
    moves: Literal["clients", "concepts"] = setting(
        "clients", "clients: some move to other groups; concepts: some groups' labels get other names"
    )
    fraction: float = setting(
        0.25, "fraction of the clients that move, or of the groups that change", above=0, most=1
    )
    span: int | None = setting(None, "rounds of a gradual change, or after which a returning one is undone", least=1)


@dataclass(frozen=True)
class TableConfig:
    """Tables of real sites (task.data=own); `task.data.tables.declaration.Declaration` reads the same keys."""

    target: str = setting("", "column to predict; for short target=<column>. Empty: the last one")
    columns: list[str] = setting(
        [], "columns of an input; none: those that most sites have. With header=false all columns of the file"
    )
    drop: list[str] = setting([], "columns that are no inputs")
    id: list[str] = setting([], "columns that name a record: never trained on, given back in predictions")
    group: str = setting(
        "", "column whose equal values belong together (a patient, a device), in every split and fold"
    )
    owner: str = setting(
        "", "one table for all: the column that says which client each record is of; for short owner=<column>"
    )
    categorical: list[str] = setting(
        [], "columns of numbers that are codes of categories; words are categories anyway"
    )
    missing: list[str] = setting(
        [], "cells that mean a missing value, besides empty ones, ?, NA, N/A, NaN, null and None"
    )
    units: dict[str, Any] = setting({}, "unit of a column, for reports: {cholesterol: mg/dl}")
    classes: dict[str, Any] = setting(
        {}, "classes of the target with the cells that mean each, {none: [0], disease: [1,2,3,4]}; none: as they are"
    )
    regression: bool | None = setting(None, "whether the target is a value; null: detected")
    header: bool = setting(True, "whether the first line of a file holds names; else task.table.columns has them")
    standardise: Literal["pooled", "site", "none"] = setting(
        "pooled", "numeric inputs have mean 0 and spread 1 over all sites' training records, or over each site's own"
    )
    incomplete: Literal["impute", "drop"] = setting(
        "impute", "records with missing inputs: impute (pooled mean or most frequent category), or drop them"
    )
    test_share: float = setting(
        0.2, "fraction of the records of an undivided table that is tested on", above=0, below=1
    )
    split_seed: int | None = setting(
        None, "seed of the split into training and test records; null: the run's", least=0
    )
    stratify: bool = setting(True, "split each class, or quantile of a regression's target, in the same fractions")
    min_count: int = setting(
        5,
        "fewest records of a category, or values of a column, for which a site sends more than a count",
        least=1,
    )


@dataclass(frozen=True)
class TaskConfig:
    """Data, how they are spread over clients, model and loss."""

    data: str = setting(
        "digits",
        "digits, mnist, fashion_mnist, mnist_and_fashion, emnist, femnist, cifar10, cifar100, svhn, tiny_imagenet, "
        "ag_news, amazon_reviews, cost2100, linear, lines or own (your files), hf:<folder or name> (a Hugging Face "
        "data set), or a function as package.module:function",
    )
    partition: str = setting(
        "rotation",
        "who holds what: composed (from parts, see docs/partitions.md), natural, rotation, rotation_blocks, "
        "rotation_mixture, rotated_anchors, label_skew_1 to label_skew_4, concept_shift, by_class, label_counts, "
        "n_way, random_clusters, own (each node its own data), flwr:<class> (a partitioner of Flower Datasets), or "
        "an import path",
    )
    model: str = setting(
        "mlp",
        "model: auto (with data of your own: linear where a table has few records, else mlp), mlp, cnn, cifar_cnn, "
        "resnet18, text_cnn, linear, autoencoder, conv_autoencoder or csi_autoencoder, "
        "or an import path",
    )
    loss: Literal["cross_entropy", "squared_error", "half_squared_error", "reconstruction"] = setting(
        "cross_entropy", "loss per sample"
    )
    num_clusters: int = setting(4, "true number of clusters of the partition; 0: not known (natural, or your own)")
    data_options: dict[str, Any] = setting({}, "options of the data set's function")
    partition_options: dict[str, Any] = setting({}, "options of the partition's function")
    model_options: dict[str, Any] = setting({}, "options of the model's function")
    head_layers: list[str] = setting([], "name prefixes of the model's head; none: as a built-in model has it")
    validation_fraction: float = setting(
        0.0,
        "fraction of each client's training samples that is never trained on and tested beside the test set "
        "(clients.csv); 0: none",
        least=0,
        below=1,
    )
    table: TableConfig = setting(TableConfig(), "tables of real sites")
    drift: DriftConfig = setting(DriftConfig(), "groups that change")


@dataclass(frozen=True)
class Chosen:
    """The algorithm and its settings."""

    name: str
    settings: Settings


@dataclass(frozen=True)
class Config(RunKeys):
    """One experiment, complete and checked."""

    experiment: str = setting("quickstart", "name of the preset, a file in conf/experiment/")
    k: int | Literal["auto"] = setting(4, "number K of models; auto finds it (clove, cfl_gp)")
    k_max: int = setting(10, "largest K that k=auto may find, and the number of models then")
    num_clients: int = setting(20, "clients of the federation", least=1)
    num_rounds: int = setting(
        10, "rounds of training; those of strategy.moment_rounds (two_phase) come before them", least=1
    )
    data_dir: str = setting("data", "folder of data sets that come as files; relative to where florets is called")
    results_dir: str = setting("results", "folder of results; relative to where florets is called")
    device: str = setting("cpu", "cpu, cuda, cuda:<n>, mps or auto: a GPU where there is one")
    engine: Literal["local", "ray", "flwr"] = setting(
        "local",
        "in this process (local), with the clients' work on a Ray cluster (ray), or through `flwr run` (flwr)",
    )
    ray_address: str = setting(
        "",
        "engine=ray: the cluster's <host:port>, or auto for the one that this machine is a node of; empty: a Ray of "
        "its own",
    )
    batch_clients: int | Literal["off", "auto"] = setting(
        "off",
        "clients whose work is computed at once, in process: models without dropout, batch normalisation and "
        "convolutions of one's own, equal to rounding; "
        "auto chooses",
        least=1,
        note="off computes each client's work alone, auto chooses the number",
    )
    workers: int | Literal["auto"] | None = setting(
        None,
        "processes, with engine=ray actors, that share the clients' work; results are equal to the bit. auto: one "
        "for each core, or free CPU of the cluster; null: one process, or auto on Ray",
        least=1,
        note="auto takes one for each core, null one process",
    )
    cluster_test: bool = setting(
        False,
        "at evaluations also test all K models on each true cluster's test data, on the server; simulation only",
    )
    measure: Literal["auto", "accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss", "r2", "mae", "rmse"] = (
        setting("auto", "figure by which models are compared on validation data; auto: the loss")
    )
    patience: int | None = setting(
        None,
        "end the run once `measure` over all validation records has not improved for so many evaluations, and take "
        "the models of the best one; null: after num_rounds, with the last ones",
        least=1,
    )
    stop_at_ari: float | None = setting(None, "end the run once the ARI is at least this", above=0, most=1)
    stop_at_groups: bool = setting(
        False, "end the run with the round that decides whether there are groups (strategy=discovery)"
    )
    loss_matrix: bool = setting(
        True, "at the end ask every client for the loss of every final model (loss_matrix.csv and its picture)"
    )
    loss_matrix_timeout: float = setting(
        60.0,
        "seconds that the loss matrix may take; in process it is left out where it would take longer",
        above=0,
    )
    pictures: bool = setting(True, "draw the curves and the loss matrix; false: only the tables and the report")
    tracker: str | list[str] = setting(
        [],
        "where the run is logged as well: tensorboard, mlflow, wandb (extras of the same names), a class as "
        "package.module:Class, or a list of them; stores lie in results_dir, see docs/trackers.md",
    )
    quiet: bool = setting(
        False, "a plain line for each round in place of the progress bar; notes, warnings and the result stay"
    )
    checkpoint_every: int = setting(
        1,
        "rounds between two checkpoints, from which resume=<run folder> goes on; 0: none. "
        "Those of cfl_gp are large (they hold the profile): write fewer with large models",
        least=0,
    )
    checkpoint_keep: int = setting(2, "newest checkpoints that are kept", least=1)
    strategy: Chosen = dataclasses.field(default_factory=lambda: Chosen(DEFAULT, settings_type(DEFAULT)()))
    task: TaskConfig = setting(TaskConfig(), "data, partition, model and loss")
    train: Training = setting(Training(), "local training")


OPTION_KEYS = (
    "task.data_options",
    "task.partition_options",
    "task.model_options",
    "task.table.units",
    "task.table.classes",
    "train.optimizer_options",
    "personal_options",
)
"""Keys whose value is a free mapping: the function that takes the options checks them."""


def walk(kind: type, prefix: str = "") -> Iterator[tuple[str, "dataclasses.Field[Any]"]]:
    """Yield the dotted name and the field of every key of a dataclass, in order, strategies left out."""
    hints = type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name == "strategy":
            continue
        if dataclasses.is_dataclass(hints[field.name]):
            yield from walk(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def known_keys(strategy: str) -> list[str]:
    """Return every dotted key of an experiment with the given strategy.

    Raises
    ------
    UnknownStrategy
        If there is no such strategy.
    """
    return list(_keys_with(settings_type(strategy)))  # type: ignore[arg-type]  # mypy does not take classes as hashable


@cache
def _keys_with(settings: type[Settings]) -> tuple[str, ...]:
    return tuple(name for kind, prefix in ((Config, ""), (settings, "strategy.")) for name, _ in walk(kind, prefix))


def as_plain(config: Config) -> dict[str, Any]:
    """Return a configuration as nested plain values, as `config.yaml` holds it."""
    values = dataclasses.asdict(config)
    values["strategy"] = {"name": config.strategy.name, **values["strategy"]["settings"]}
    first = ["experiment", "strategy"]
    return {name: values[name] for name in [*first, *(name for name in values if name not in first)]}
