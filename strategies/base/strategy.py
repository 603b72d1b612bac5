"""`Strategy`: an algorithm as a Flower Strategy: its properties, and what happens in a round."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

from florets.strategies.base.asking import handler_paths
from florets.strategies.base.evaluation import EvaluationSettings
from florets.strategies.base.federation import Federation
from florets.strategies.base.groups import Frozen
from florets.strategies.base.hooks import Hooks, M, S
from florets.strategies.base.method import Method
from florets.strategies.base.models import Averaging, GradientAveraging, Models, averaging_of
from florets.strategies.base.report import Detail, State
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.core import FloatArray
from florets.strategies.coverage import least_clients, protection_problems, too_few
from florets.strategies.settings import (
    Averages,
    ChooseK,
    FirstRound,
    RunKeys,
    Settings,
    choice_of,
    loss_batch_of,
    start_with,
)
from florets.task.keys import as_declared, range_problems
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.leaving import FOLDS, GRADIENTS, MASKED, MODELS


class Strategy(Hooks[S, M], ABC):
    """One model for each group of clients; a subclass says in `round` who trains which.

    Parameters
    ----------
    settings, run
        The algorithm's own keys, and those of the run; None: their defaults.
    averaging
        What clients return and how it is averaged, in place of the run's choice.
    input_shape, num_outputs, loss
        Sizes and loss of the task, for algorithms that need them.
    validation
        Clients test on their validation data too.
    personal
        What clients have of their own within the groups that the algorithm finds; None: their group's model.
    fingerprint
        Hash of the code that clients must run; None accepts any.
    **keys
        Single keys of the run and of the algorithm, in place of those in `run` and `settings`:
        ``CLoVE(k=4, eval_every=5, stability_rounds=2)``.

    Attributes
    ----------
    state
        All that the algorithm remembers; checkpoints hold this and nothing else.
    k
        Number of clusters, "auto" where the algorithm is to find it; None: as many as there are models.
    first_round, choose_k, loss_data
        Run-level choices; None where the algorithm has no such choice.
    loss_batch
        Samples that losses are taken on while clustering; None: all.
    seed
        Of every draw; take generators from `Round.random`.
    """

    Settings: ClassVar[type[Any]] = Settings
    """Class of the algorithm's settings."""
    State: ClassVar[type[Any]] = State
    """Class of what the algorithm remembers."""
    client_handlers: ClassVar[tuple[Any, ...]] = ()
    """The algorithm's own client handlers, functions or import paths ``package.module:function``.

    In a class that was made they are import paths, its method's handler among them; see docs/extending.md.
    """
    leaving: ClassVar[tuple[str, ...]] = (MODELS,)
    """Names of what leaves the clients in every run (`florets.task.wire.leaving`): a node that never sends one of
    them takes no part."""
    method: ClassVar[type[Method[Any, Any]] | None] = None
    """How clients train within their groups; None: local training as the run has it."""

    k: int | Literal["auto"] | None
    first_round: FirstRound | None
    choose_k: ChooseK | None
    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str

    def __init__(
        self,
        settings: S | None = None,
        run: RunKeys | None = None,
        *,
        averaging: Averaging | Averages | None = None,
        input_shape: Sequence[int] = (),
        num_outputs: int = 0,
        loss: str = "",
        validation: bool = False,
        personal: Method[Any, Any] | None = None,
        fingerprint: str | None = None,
        **keys: Any,
    ) -> None:
        of_run = {field.name: keys.pop(field.name) for field in fields(RunKeys) if field.name in keys}
        if averaging is not None and not isinstance(averaging, Averaging):
            of_run["averaging"] = averaging
        chosen: S = replace(self.Settings() if settings is None else settings, **keys)
        self.settings, problems = as_declared(chosen)
        self.run, of_run_problems = as_declared(replace(RunKeys() if run is None else run, **of_run))
        if problems := [*problems, *of_run_problems] or [
            *range_problems(chosen),
            *range_problems(self.run),
            *protection_problems(chosen, self.run),
            *too_few(chosen, self.run, self.run.num_clients),
        ]:
            raise ValueError(" ".join(problems))
        run = self.run
        self.k, self.seed, self.round_timeout = run.k, run.seed, run.round_timeout
        self.averaging = averaging if isinstance(averaging, Averaging) else averaging_of(self.settings, run)
        self.choose_k = choice_of(self.settings, "choose_k", run.choose_k)
        self.loss_data = choice_of(self.settings, "loss_data", run.loss_data)
        self.loss_batch = loss_batch_of(self.settings, run.loss_batch)
        self.first_round = choice_of(self.settings, "first_round", start_with(self.settings, run, self.choose_k))
        self.input_shape, self.num_outputs, self.loss = tuple(input_shape), num_outputs, loss
        self.shared_layers = tuple(getattr(self.settings, "shared_layers", ()))
        sums_of = (num_outputs if loss == "cross_entropy" else 0) if run.statistics else None
        self.evaluation = EvaluationSettings(run.fine_tune_epochs, validation, sums_of)
        if self.method is not None and personal is not None:
            raise ValueError(f"personal={personal.name}: {type(self).__name__} has its own method; leave it out")
        if personal is not None:
            choice_of(self.settings, "personal", personal.name)
        self.personal = personal if self.method is None else self.method(self.settings)
        if self.personal is not None:
            if isinstance(self.averaging, GradientAveraging):
                raise ValueError(
                    f"averaging=gradients: clients of {self.personal.name} send models; use averaging=models"
                )
            if self.personal.averages and self.averaging.robust is not None:
                raise ValueError(
                    f"robust={run.robust}: {self.personal.name} averages updates by itself, which no rule bounds; "
                    "use robust=none"
                )
            self.personal.within(lambda: self.state, num_outputs)
        self.state: M = self.State()
        least, needed = run.min_clients, least_clients(self.settings, run)
        if needed > 1 and (run.num_clients is None or least is not None):
            # Noise or masks of fewer would fail in round 1.
            least = max(least or 1, needed)
        self.federation = Federation(
            *(run.num_clients, run.start_timeout, fingerprint, least, self.client_handlers),
            self.all_leaving(),
            compares=not run.privacy.has_noise,
        )
        batches = {kinds.LOSS_BATCH: self.loss_batch, kinds.GRADIENT_BATCH: getattr(self.averaging, "batch", None)}
        self.federation.subsets = {key: size for key, size in batches.items() if size}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        by_method = () if cls.method is None or cls.method.handler is None else (cls.method.handler,)
        cls.client_handlers = handler_paths((*cls.client_handlers, *by_method))

    @abstractmethod
    def round(self, r: Round) -> Steps:
        """Run a round: ask clients what is needed, yield the training exchange, return the next models.

        It yields once, a plan (`Round.train`), and is given the valid updates, pairs of a client's key and its update
        in the order of the keys. By then `assignment` has the updates' models. It returns the next bank (K, R), as
        `Round.average` makes it; None leaves the models as they are. Where too few updates came, `RoundFailed` is
        raised at the yield; the state is then as it was before the round, unless the algorithm catches it.
        """

    def test(self, r: Round) -> Plan[TestResult]:
        """Decide what each of `r.testers` tests: by default the model that it is assigned."""
        return r.test_assigned(self.assignment)

    def begins(self, groups: Mapping[str, int], are_found: bool) -> None:
        """Take over a first assignment, found by updates or drawn at random, that is not the algorithm's own."""

    def check(self, models: Models) -> None:
        """Raise ValueError where the algorithm does not fit the initial models; called before any client is asked."""
        starts_with_k = not (self.settings.one_model or self.settings.grows)
        if isinstance(self.k, int) and self.k > models.count and starts_with_k:
            raise ValueError(
                f"k={self.k} clusters need as many models, but the initial arrays hold {models.count}; "
                "pack K models with florets.task.wire.bank.pack"
            )
        if self.settings.grows and models.shared.all():
            raise ValueError(
                f"shared_layers={list(models.shared_layers)} leaves nothing to differ between the models that this "
                "algorithm adds; leave a layer out, or use one model (fedavg)"
            )
        if self.personal is not None:
            self.personal.check(models)
        if models.layout.untrained.any() and getattr(self, "run", RunKeys()).privacy.has_noise:
            raise ValueError(
                "privacy.kind: the model keeps running statistics or counters of its inputs, to which no noise is "
                "added; use one without batch normalisation"
            )

    @property
    def is_frozen(self) -> bool:
        """Whether groups are frozen, so that the server only needs the sums of this round's updates.

        Read after the round has yielded, for secure aggregation; by default true once the phase is "stable".
        """
        return self.phase == "stable"

    def details(self) -> dict[str, Detail]:
        """Return what only this algorithm reports of the round that just ended; by default `state.details`."""
        return self.state.details

    def frozen_clusters(self) -> Frozen | None:
        """Return the clusters that newcomers are assigned by; None: they take the model with the lowest loss."""
        return None

    def own_models(self, models: Models) -> dict[str, FloatArray] | None:
        """Return the model (R,) of each client that has one besides the final `models`; None: none can."""
        return None if self.personal is None else self.personal.own_models(models, self.assignment)

    def final_models(self, models: Models) -> Models:
        """Return the models that `assignment` refers to at the end of a run: by default the bank's."""
        return models

    def all_leaving(self) -> frozenset[str]:
        """Return the names of what leaves the clients in every run, in the form of this run's averages."""
        names = {*self.leaving, *(() if self.personal is None else self.personal.leaving)}
        form = GRADIENTS if isinstance(self.averaging, GradientAveraging) else MODELS
        # Groups that are known from the start are masked in every round.
        form = MASKED if self.run.secure_aggregation and self.is_frozen else form
        if self.first_round == "update" and (self.k == "auto" or self.run.privacy.is_central):
            names.add(FOLDS)
        return frozenset(form if name == MODELS else name for name in names)
