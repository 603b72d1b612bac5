"""The keys of each strategy; see `florets.conf.schema`."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from dataclasses import dataclass
from typing import Literal

from florets.conf.key import key


@dataclass(frozen=True)
class _AnyStrategy:
    name: str = key("", "name of the strategy")
    fraction_train: float = key(1.0, "participation rate rho: share of the clients that a round samples")


@dataclass(frozen=True)
class _AveragingStrategy(_AnyStrategy):
    shared_layers: list[str] = key([], "name prefixes of layers averaged over all clients, equal in all models")


@dataclass(frozen=True)
class _ManyModels(_AveragingStrategy):
    init: Literal["different", "same", "orthonormal"] = key("different", "how the K first models relate")


@dataclass(frozen=True)
class ModelsOrGradients(_ManyModels):
    """What strategies have whose clients can send gradients in place of models."""

    averaging: Literal["models", "gradients"] = key("models", "what clients send and the server averages")
    normaliser: Literal["group_n", "group", "all"] = key(
        "group_n",
        "divide by the group's samples, its clients, or by all participants (models: samples, gradients: clients)",
    )
    gradient_batch: int | Literal["full"] = key("full", "samples per gradient (averaging=gradients)")
    server_learning_rate: float | None = key(None, "gamma of averaging=gradients; null: train.learning_rate")
    server_optimizer: Literal["sgd", "adam"] = key("sgd", "the server's step of averaging=gradients")


@dataclass(frozen=True)
class _ClusteredStrategy(ModelsOrGradients):
    first_round: Literal["random", "evaluate"] = key("random", "round 1 assigns models at random, or by the losses")


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
class CflGpStrategy(_AveragingStrategy):
    """The server clusters the clients' gradients on all models, averaged over time."""

    name: Literal["cfl_gp"] = key("cfl_gp", "name of the strategy")
    init: Literal["different", "same", "orthonormal"] = key("different", "how the K first models relate")
    initial_groups: Literal["random", "one"] = key("random", "groups before the first clustering, in round 2")
    period: int = key(2, "rounds P from one clustering to the next")
    averaging: Literal["gradients", "models"] = key(
        "gradients", "what clients send and the server averages; the profile is made of gradients or model changes"
    )
    normaliser: Literal["group", "group_n"] = key(
        "group", "mean over a group's clients, or weighted by their samples"
    )
    gradient_batch: int | Literal["full"] | None = key(
        None, "samples per gradient (averaging=gradients); null: train.batch_size"
    )
    cluster_rounds: int | None = key(None, "no clustering after this round; null: no such bound")
    stop_unchanged: float = key(0.1, "stop clustering once unchanged for this share of all rounds; 0: never")
    running_mean: bool = key(True, "average gradients over time; false keeps the last one (beta = 1)")
    compression: float = key(1.0, "d / d_hat: one random coordinate in so many makes the profile")
    profile_layers: list[str] = key([], "name prefixes of the layers that make the profile; none: all")
    quantise: Literal["none", "round", "truncate"] = key(
        "none", "decimals of all gradients and model changes that a client sends"
    )
    quantise_digits: int = key(2, "decimals that are kept; 0: whole numbers (quantise)")
    k_warmup: int = key(20, "rounds before the number of clusters is estimated (k=auto)")


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


@dataclass(frozen=True)
class OracleStrategy(ModelsOrGradients):
    """The benchmark that knows the truth: the true clusters, or the true models to start from."""

    name: Literal["oracle"] = key("oracle", "name of the strategy")
    mode: Literal["labels", "true_start"] = key(
        "labels", "each client trains its true cluster's model; or IFCA from the true models, where the task has them"
    )


@dataclass(frozen=True)
class OneShotStrategy(_ManyModels):
    """Clients estimate models alone, k-means groups the estimates once, then FedAvg in each group."""

    name: Literal["one_shot"] = key("one_shot", "name of the strategy")
    estimate: Literal["train", "least_squares"] = key(
        "train", "a client's estimate: local training, or the shortest least-squares solution (linear regressions)"
    )
    estimate_epochs: int = key(10, "passes over the client's data for its estimate (estimate=train)")


@dataclass(frozen=True)
class KFedStrategy(_ManyModels):
    """Clients cluster their own data, the server groups the centres once, then FedAvg in each group."""

    name: Literal["k_fed"] = key("k_fed", "name of the strategy")
    local_clusters: int = key(1, "centres that a client finds in its data; 1: their mean")
    features: Literal["inputs", "inputs_and_targets"] = key(
        "inputs", "what is clustered: the inputs, or the inputs with the targets beside them"
    )


@dataclass(frozen=True)
class TwoPhaseStrategy(_AnyStrategy):
    """Mixed regression: a few anchors find coarse models by moment descent, then all clients refine them."""

    name: Literal["two_phase"] = key("two_phase", "name of the strategy")
    moment_rounds: int = key(5, "rounds of phase 1, before those of num_rounds; 0: phase 2 alone")
    anchors: int | Literal["auto"] = key("auto", "number of anchors; auto: ceil(3 k ln k), at least k")
    min_anchor_examples: int = key(2, "clients with fewer training samples are no anchors")
    subspace: Literal["iteration", "direct"] = key(
        "iteration",
        "how subspaces are found; direct: one exchange, but clients send gradients of single samples (privacy!)",
    )
    inner_steps: int = key(4, "T1, exchanges of an orthogonal iteration, even (subspace=iteration)")
    pairing: Literal["all", "halves", "single"] = key("all", "pairs of a client's samples that make its moments")
    subspace_clients: int | Literal["all"] = key("all", "clients asked for their moments in a round of phase 1")
    fresh: bool = key(False, "never ask a client for its moments twice, nor an anchor")
    alpha: float = key(1.0, "lower bound on the inputs' covariance; the step is alpha sigma / (2 beta^2)")
    beta: float = key(1.0, "upper bound on the inputs' covariance")
    epsilon: float = key(0.05, "an anchor stops at sigma <= epsilon alpha delta / sqrt(2) (where delta is given)")
    delta: float | None = key(None, "least distance between true models; null: not known, anchors never stop")
    grouping: Literal["exactly_k", "threshold"] = key(
        "exactly_k", "anchors are grouped into k by average linkage, or where they are nearer than delta/2"
    )
    noise: float = key(0.0, "standard deviation of the noise on the anchors' estimates that others are sent")
    labels: Literal["hard", "soft"] = key("hard", "phase 2: train the lowest-loss model, or all by weights")
    temperature: float = key(1.0, "weights are proportional to exp(-n loss / temperature) (labels=soft)")
    local_solver: Literal["fedavg", "fedprox"] = key(
        "fedavg", "phase 2: local steps, or the proximal problem with eta=train.learning_rate"
    )
    normaliser: Literal["all", "group_n"] = key(
        "all", "divide by all participants' samples, or by those of the model's own clients"
    )
    init: Literal["different", "same", "orthonormal"] = key(
        "different", "how the K first models relate; phase 1 starts from the first alone"
    )


StrategyConfig = (
    CloveStrategy
    | IfcaStrategy
    | CflGpStrategy
    | FedAvgStrategy
    | FedProxStrategy
    | LocalStrategy
    | OracleStrategy
    | OneShotStrategy
    | KFedStrategy
    | TwoPhaseStrategy
)

STRATEGIES: dict[str, type[StrategyConfig]] = {
    "clove": CloveStrategy,
    "ifca": IfcaStrategy,
    "cfl_gp": CflGpStrategy,
    "fedavg": FedAvgStrategy,
    "fedprox": FedProxStrategy,
    "local": LocalStrategy,
    "oracle": OracleStrategy,
    "one_shot": OneShotStrategy,
    "k_fed": KFedStrategy,
    "two_phase": TwoPhaseStrategy,
}

ONE_MODEL = (FedAvgStrategy, FedProxStrategy, LocalStrategy)
"""Strategies that start from one model, whatever k is."""
