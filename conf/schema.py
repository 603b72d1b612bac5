"""Every key of an experiment: its type, its default and what it does.

These dataclasses are the only place where keys and defaults are declared. `florets --help` prints the texts;
`conf.typed` holds values to the types; `conf.validate` holds them to their ranges.
"""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_type_hints

T = TypeVar("T")


def key(default: T, text: str) -> T:
    """Declare a key with its default and its help text.

    The declared return type is the value's and not `Field`, as that of `dataclasses.field` is.
    """
    if isinstance(default, list | dict):
        # The copy keeps two configurations from sharing one mutable default.
        field: Any = dataclasses.field(default_factory=default.copy, metadata={"help": text})
    else:
        field = dataclasses.field(default=default, metadata={"help": text})
    declared: T = field
    return declared


@dataclass(frozen=True)
class _AnyStrategy:
    name: str = key("", "name of the strategy")
    fraction_train: float = key(1.0, "participation rate rho: share of the clients that a round samples")


@dataclass(frozen=True)
class _AveragingStrategy(_AnyStrategy):
    shared_layers: list[str] = key([], "name prefixes of layers averaged over all clients, equal in all models")


@dataclass(frozen=True)
class _ClusteredStrategy(_AveragingStrategy):
    first_round: Literal["random", "evaluate"] = key("random", "round 1 assigns models at random, or by the losses")
    init: Literal["different", "same", "orthonormal"] = key("different", "how the K first models relate")
    averaging: Literal["models", "gradients"] = key("models", "what clients send and the server averages")
    normaliser: Literal["group_n", "group", "all"] = key(
        "group_n",
        "divide by the group's samples, its clients, or by all participants (models: samples, gradients: clients)",
    )
    gradient_batch: int | Literal["full"] = key("full", "samples per gradient (averaging=gradients)")
    server_learning_rate: float | None = key(None, "gamma of averaging=gradients; null: train.learning_rate")
    server_optimizer: Literal["sgd", "adam"] = key("sgd", "the server's step of averaging=gradients")


@dataclass(frozen=True)
class CloveStrategy(_ClusteredStrategy):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    name: Literal["clove"] = key("clove", "name of the strategy")
    clustering: Literal["kmeans", "agglomerative"] = key("kmeans", "how loss vectors are clustered")
    choose_k: Literal["silhouette", "elbow"] = key("silhouette", "rule that finds K (k=auto)")
    k_min_improvement: float = key(
        0.0, "least relative gain that a larger K must bring; negative: a loss that it may cost (k=auto)"
    )
    matching: Literal["min_cost", "overlap", "none"] = key("min_cost", "how clusters are matched to models")
    square_root: bool = key(False, "take the square root of the losses before clustering and matching")
    stability_rounds: int = key(3, "a client is stable when its last s assignments are equal")
    stability_fraction: float = key(1.0, "share of a round's participants that must be stable")
    stop_when_stable: bool = key(True, "freeze the clustering once it is stable")
    reassign_unstable: bool = key(False, "then also place anew the clients that were not stable themselves")
    absurd_loss: float | None = key(
        100.0, "leave out clients whose best loss is this many times the others' worst; null: leave out nobody"
    )
    memory: bool = key(False, "cluster the latest loss vectors of all clients seen, not only this round's")


@dataclass(frozen=True)
class IfcaStrategy(_ClusteredStrategy):
    """Each client picks the model with the lowest loss on its data, and trains it."""

    name: Literal["ifca"] = key("ifca", "name of the strategy")


@dataclass(frozen=True)
class FedAvgStrategy(_AveragingStrategy):
    """One global model, the average of the clients' models."""

    name: Literal["fedavg"] = key("fedavg", "name of the strategy")


@dataclass(frozen=True)
class FedProxStrategy(_AveragingStrategy):
    """FedAvg whose clients are held near the global model by a proximal term."""

    name: Literal["fedprox"] = key("fedprox", "name of the strategy")
    proximal_mu: float = key(0.01, "weight mu of the proximal term mu/2 |theta - theta_start|^2")


@dataclass(frozen=True)
class LocalStrategy(_AnyStrategy):
    """Every client trains alone: the yardstick without any federation."""

    name: Literal["local"] = key("local", "name of the strategy")


StrategyConfig = CloveStrategy | IfcaStrategy | FedAvgStrategy | FedProxStrategy | LocalStrategy

STRATEGIES: dict[str, type[StrategyConfig]] = {
    "clove": CloveStrategy,
    "ifca": IfcaStrategy,
    "fedavg": FedAvgStrategy,
    "fedprox": FedProxStrategy,
    "local": LocalStrategy,
}


@dataclass(frozen=True)
class TaskConfig:
    """Data, how they are spread over clients, model and loss."""

    data: str = key(
        "digits",
        "digits, mnist, fashion_mnist, cifar10 or linear, or a function of yours as package.module:function",
    )
    partition: str = key(
        "rotation",
        "who holds what: rotation, label_skew_1 to label_skew_4, concept_shift or by_class, or an import path",
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
    k: int | Literal["auto"] = key(4, "number K of models; auto finds it in every round (clove)")
    k_max: int = key(10, "largest K that k=auto may find, and the number of models then")
    num_clients: int = key(20, "clients of the federation")
    num_rounds: int = key(10, "rounds of training")
    data_dir: str = key("data", "folder of data sets that come as files; relative to where florets is called")
    results_dir: str = key("results", "folder of results; relative to where florets is called")
    device: str = key("cpu", "cpu, cuda or cuda:<n>")
    engine: Literal["local", "flwr"] = key("local", "in this process (local), or through `flwr run` (flwr)")
    eval_every: int = key(1, "rounds between evaluations on test data; the last round is always evaluated")
    stop_at_ari: float | None = key(None, "end the run once the ARI is at least this")
    quiet: bool = key(False, "plain lines in place of the progress bar")
    min_clients: int | None = key(None, "clients needed to start; null: num_clients")
    quorum: float = key(0.5, "share of the clients asked whose usable replies a round needs; below it is repeated")
    start_timeout: float = key(120.0, "seconds to wait for the clients at the start")
    round_timeout: float = key(3600.0, "seconds to wait for the replies of a round")
    grace: float | None = key(None, "seconds to wait for the rest once the quorum replied; null: round_timeout")
    round_tries: int = key(3, "how often a round below the quorum is tried before the run ends")
    checkpoint_every: int = key(1, "rounds between two checkpoints, from which resume=<run folder> goes on; 0: none")
    checkpoint_keep: int = key(2, "newest checkpoints that are kept")
    strategy: StrategyConfig = key(CloveStrategy(), "the algorithm and its keys")
    task: TaskConfig = key(TaskConfig(), "data, partition, model and loss")
    train: TrainConfig = key(TrainConfig(), "local training")


ONE_MODEL = (FedAvgStrategy, FedProxStrategy, LocalStrategy)
"""Strategies that start from one model, whatever k is."""

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
