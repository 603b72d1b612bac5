"""Keys of the run that strategies follow, and the base classes of an algorithm's own settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from florets.task.keys import setting
from florets.task.settings import TaskConfig
from florets.task.training.settings import Training

Averages = Literal["models", "gradients"]
FirstRound = Literal["random", "evaluate", "update"]
ChooseK = Literal["silhouette", "spectral", "folds"]
LossData = Literal["train", "held_out"]
Robust = Literal["none", "clip", "trimmed_mean", "median", "geometric_median", "multi_krum"]
PersonalName = Literal["none", "intercept", "slopes"]
PERSONAL = {
    "intercept": "florets.strategies.random_effects.strategy:InterceptClients",
    "slopes": "florets.strategies.random_effects.strategy:SlopesClients",
}
"""Values of `personal`, and the path of the `Method` that each one means."""
Weighting = Literal["examples", "uniform", "all_participants"]
Initial = Literal["different", "same", "orthonormal", "true"]


PrivacyKind = Literal["none", "central", "local", "example"]


@dataclass(frozen=True)
class Privacy:
    """Differential privacy: what is released hardly depends on any one client's data, or on any one record."""

    kind: PrivacyKind = setting(
        "none",
        "differential privacy of each client, with noise added by the server to sums over clients (central) or by "
        "each client (local); or of each record, with noise added in training (example)",
    )
    epsilon: float | Literal["inf"] | None = setting(
        None,
        "epsilon of the whole run, which ends before it would exceed it; inf: no noise",
        above=0,
    )
    delta: float | None = setting(
        None,
        "delta; null: 1 / num_clients^2 (below ten clients 1 / (10 num_clients)), with example 1e-5",
        above=0,
        below=1,
    )
    clip: float | None = setting(
        None,
        "norm to which a client's update, or a record's gradient, is clipped; null: with central the usual one, "
        "measured with noise; 1 where the server sees no single update",
        least=1e-6,
    )
    min_group: int = setting(
        3,
        "clients that a group needs for its own model; smaller ones take the others' mean",
        least=1,
        needs="privacy.kind=central|local",
    )

    @property
    def has_noise(self) -> bool:
        """Whether there is a guarantee."""
        return self.kind != "none" and self.epsilon not in (None, "inf")

    @property
    def known_clip(self) -> float:
        """Largest norm of an update as long as nothing is known of their lengths."""
        return 1.0 if self.clip is None else self.clip

    @property
    def is_central(self) -> bool:
        """Whether the server adds the noise."""
        return self.kind == "central" and self.has_noise

    @property
    def is_local(self) -> bool:
        """Whether clients add the noise."""
        return self.kind in ("local", "example") and self.has_noise

    @property
    def hides_records(self) -> bool:
        """Whether there is a guarantee for single records."""
        return self.kind == "example" and self.has_noise


ASKS = {
    "losses": "clients' losses of the models",
    "choices": "clients' choices among the models",
    "folds": "what clients learn on folds of their data",
    "descriptors": "descriptors of clients' data",
    "gradients": "clients' gradients, over rounds",
    "updates": "each client's update by itself",
    "models": "each client's own model",
    "moments": "moments of clients' data",
}
"""Requests to clients besides the mean of their updates (`Settings.asks`), in words."""


MODELS_ALONE: Mapping[str, Sequence[str]] = {"averaging": ("models",)}
"""`Settings.follows` of an algorithm that averages models, and whose clients have none within groups."""
MODELS_OF_GROUPS: Mapping[str, Sequence[str]] = {**MODELS_ALONE, "personal": ("none", "intercept", "slopes")}
"""`Settings.follows` of an algorithm that averages models, of whose groups a client may have a part of its own."""


@dataclass(frozen=True)
class RunKeys:
    """Run-level keys that describe the experiment and its rounds; every strategy takes them."""

    seed: int = setting(0, "seed of every random draw of the run", least=0)
    k: int | Literal["auto"] | None = setting(None, "number K of models; null: as many as it is given")
    num_clients: int | None = setting(None, "number of clients; null: those that are online", least=1)
    averaging: Averages | None = setting(
        None,
        "what clients send and the server averages; null: the strategy's own (gradients for cfl_gp, else models)",
    )
    gradient_batch: int | Literal["full"] | None = setting(
        None,
        "samples per gradient; null: full, or train.batch_size for cfl_gp",
        least=1,
        needs="averaging=gradients",
    )
    server_optimizer: Literal["sgd", "adam"] = setting(
        "sgd", "the server's step, of train.learning_rate", needs="averaging=gradients"
    )
    first_round: FirstRound | None = setting(
        None,
        "round 1 assigns models at random, by the losses (evaluate), or by the updates of one model, and each group "
        "starts from its mean (update); null: the strategy's own (random)",
    )
    choose_k: ChooseK | None = setting(
        None,
        "rule that chooses K (k=auto); folds: discovery in round 1, which may detect no groups, with "
        "first_round=update; null: the strategy's own",
    )
    robust: Robust = setting(
        "none",
        "rule for each group's average that a minority of hostile clients cannot move far",
    )
    hostile: float = setting(
        0.2,
        "largest fraction of a group's clients that may be hostile (robust): bounds how many clients trimmed_mean "
        "and multi_krum leave out, how much weight they have, and how many may be in quarantine",
        most=0.5,
        needs="robust",
    )
    secure_aggregation: bool = setting(
        False,
        "once groups are frozen, clients mask their updates, and the server learns only the sum of each group "
        "(docs/privacy.md); groups of fewer than 3 clients are not trained",
    )
    privacy: Privacy = setting(
        Privacy(), "differential privacy of clients, or of single records", needs="privacy.kind"
    )
    loss_data: LossData | None = setting(
        None,
        "losses for grouping are computed on the training data, or on a held-out fifth; null: train",
    )
    loss_batch: int | None = setting(
        None,
        "samples, drawn anew in each round, that a client takes the losses of the models on; null: all",
        least=1,
        needs="loss_data",
    )
    personal: PersonalName | None = setting(
        None,
        "each client's own part of its group's model: the last layer's intercepts, or all coefficients of that "
        "layer; null: none",
    )
    eval_every: int = setting(
        1, "rounds between evaluations on test data; the last round is always evaluated", least=1
    )
    eval_clients: Literal["all", "participants"] = setting(
        "all", "which clients test: all with a model, or the round's participants"
    )
    fine_tune_epochs: float = setting(
        0.0,
        "at every evaluation each client also fine-tunes a copy of its model for this many epochs and tests it. "
        "Costs as much as training: raise eval_every. 0: none",
        least=0,
    )
    statistics: bool = setting(
        False,
        "at evaluations clients also send sums of their tests and bootstrap replicates of their figures, from which "
        "figures over all clients' records together follow (tests.json)",
    )
    min_clients: int | None = setting(
        None,
        "clients needed to start; null: num_clients. With nodes' own data the number of clients is not known "
        "otherwise",
        least=1,
    )
    quorum: float = setting(
        0.5,
        "fraction of the clients asked whose valid replies a round needs; otherwise it is repeated, at most twice",
        above=0,
        most=1,
        note="1.0 means all",
    )
    start_timeout: float = setting(
        120.0,
        "seconds to wait for the clients at the start, and later for any client if all have gone offline",
        above=0,
    )
    round_timeout: float = setting(
        3600.0, "seconds to wait for the replies of an exchange; a round has one to three", above=0
    )


@dataclass(frozen=True)
class Experiment(RunKeys):
    """The keys of a run, which `Settings.problems` is given."""

    k: int | Literal["auto"] = setting(4, "number K of models; auto: determined by the data (clove, cfl_gp, ...)")
    k_max: int = setting(10, "largest K that k=auto may choose, and the number of models then")
    num_clients: int = setting(20, "number of clients", least=1)
    num_rounds: int = setting(
        10, "rounds of training; those of strategy.moment_rounds (two_phase) come before them", least=1
    )
    task: TaskConfig = setting(TaskConfig(), "data, partition, model and loss")
    train: Training = setting(Training(), "local training")


@dataclass(frozen=True)
class Settings:
    """Keys of an algorithm, and what others may ask about it without importing it.

    A subclass declares its keys with `setting`. Its docstring's first line is the algorithm's line in
    `florets --help`.
    """

    fraction_train: float = setting(
        1.0,
        "participation rate rho: fraction of the clients that a round samples",
        above=0,
        most=1,
        note="1.0 means all",
    )

    one_model: ClassVar[bool] = False
    """All clients share one model, or each has its own: `k` is not used."""
    has_groups: ClassVar[bool] = True
    """Whether a run ends with groups of clients, so that an ARI exists."""
    grows: ClassVar[bool] = False
    """Begins with one model, from which the groups' models grow: `k` counts groups, and a preset's does not apply."""
    finds_k: ClassVar[bool] = False
    """Takes `k=auto`."""
    mixes: ClassVar[bool] = False
    """A client predicts with a mixture of all K models instead of its assigned one."""
    shares: ClassVar[bool] = False
    """Has, for each client, its share of each model (`Strategy.mixtures`)."""
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "personal": ("none", "intercept", "slopes"),
    }
    """Values that the algorithm can follow of run-level choices; the first is its default. One not named has no
    effect. An algorithm that names `loss_data` follows `loss_batch`, too."""
    adapts: ClassVar[bool] = False
    """Each client adapts the model to its own data before it uses it: what a run saves is the model before that."""
    asks: ClassVar[frozenset[str]] = frozenset()
    """What the algorithm asks of clients besides the mean of their updates, of `ASKS`, for protections to cover."""
    freezes: ClassVar[bool] = False
    """Whether groups are frozen from some round on."""
    grouping_rounds: ClassVar[int | None] = None
    """Rounds with groupings until groups may be frozen; None: as many as there are."""
    compares: ClassVar[Literal["", "participants", "clients"]] = ""
    """Which clients the server compares pairwise: memory grows with the square of their number."""
    usual_initial: ClassVar[Initial] = "different"
    """The initial models, where `init` is no key."""
    gradient_batch: ClassVar[Literal["full", "train"]] = "full"
    """Examples of a gradient where `gradient_batch` is null: all, or `train.batch_size`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        asks = vars(cls).get("asks", frozenset())
        if not isinstance(asks, property) and (not isinstance(asks, frozenset) or asks - ASKS.keys()):
            raise TypeError(f"{cls.__name__}.asks={asks!r}: must be a frozenset of {', '.join(ASKS)}")

    @property
    def rounds_before(self) -> int:
        """Rounds that the algorithm needs before those that `num_rounds` counts."""
        return 0

    @property
    def extra_models(self) -> int:
        """Initial models that the algorithm needs in addition to the K that are trained."""
        return 0

    def problems(self, run: Experiment) -> list[str]:
        """Return one line for each setting that cannot work in this run: key and value, rule, remedy."""
        return []

    @property
    def initial(self) -> Initial:
        """The initial models: those of `init`, where that is a key; "true": the task's true models."""
        initial: Initial = getattr(self, "init", self.usual_initial)
        return initial


@dataclass(frozen=True)
class SharedLayers(Settings):
    """Keys of an algorithm that averages models."""

    shared_layers: list[str] = setting([], "name prefixes of layers averaged over all clients, equal in all models")


@dataclass(frozen=True)
class OneModel(SharedLayers):
    """Keys of an algorithm with one model for everybody."""

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False


@dataclass(frozen=True)
class ManyModels(SharedLayers):
    """Keys of an algorithm with several models."""

    init: Literal["different", "same", "orthonormal"] = setting("different", "the K initial models")


@dataclass(frozen=True)
class Weighted(ManyModels):
    """Keys of an algorithm that lets the user choose the weights of its averages."""

    weighting: Weighting = setting(
        "examples",
        "weights of an average: by examples, uniform, or relative to all participants, of whom those with another "
        "model count as unchanged",
    )


def choice_of(settings: Settings, name: str, given: Any) -> Any:
    """Return a run-level choice, or the algorithm's default."""
    values = settings.follows.get(name, ())
    if given is not None and given not in values:
        can = f"it takes {' or '.join(values)}" if values else "it has no such choice"
        raise ValueError(f"{name}={given}: the strategy cannot follow it; {can}")
    return given or (values[0] if values else None)


def start_with(settings: Settings, run: RunKeys, choose_k: ChooseK | None) -> FirstRound | None:
    """Return the first assignment: by updates where folds find K or all is noised."""
    first_round = run.first_round
    if run.k != "auto" or choose_k != "folds":
        knows = "update" in settings.follows.get("first_round", ())
        return "update" if run.privacy.is_central and knows and first_round is None else first_round
    if first_round not in (None, "update"):
        raise ValueError(f"first_round={first_round}: choose_k=folds finds K with first_round=update")
    return "update"


def sampled_of(fraction: float, clients: int) -> int:
    """Return how many of some clients a round samples."""
    # The small constant keeps products such as 0.29 * 100 from losing one to rounding.
    return max(1, int(fraction * clients + 1e-9))
