"""`Algorithm`: what an algorithm says about itself; `Strategy`: the Flower Strategy that runs it, round by round."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import FrameType
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from florets.strategies.base.round import (
    Plan,
    Round,
    handler_paths,
)
from florets.strategies.base.evaluation import EvaluationSettings, confusions_of, evaluation_of, mean_results
from florets.strategies.base.example_privacy import ExampleGuard
from florets.strategies.base.exchange import Meter, log, send, sort_replies
from florets.strategies.base.federation import Federation, FederationError, RoundFailed, TrainingDiverged
from florets.strategies.base.method import Method, PersonalMethod
from florets.strategies.base.models import Averaging, GradientAveraging, Models, averaging_of, untrained_of
from florets.strategies.base.placement import Frozen
from florets.strategies.base.privacy import Budget, BudgetSpent, Guard
from florets.strategies.base.quarantine import move_quarantined, quarantine_details, trusted_updates
from florets.strategies.base.report import (
    ADVICE,
    PRIVACY,
    SUMMED,
    CostEstimate,
    Detail,
    Evaluation,
    RoundReport,
    State,
    named,
    snapshot,
)
from florets.strategies.base.secure import SecureAggregation, secure_problems
from florets.strategies.core import FloatArray
from florets.strategies.core.noised_clusters import COST
from florets.strategies.settings import (
    Averages,
    ChooseK,
    FirstRound,
    LossData,
    RunKeys,
    Settings,
    choice_of,
    least_clients,
    loss_batch_of,
    privacy_problems,
    robust_problems,
    start_with,
    too_few,
)
from florets.task.device import give_back_freed, seldom_collected
from florets.task.keys import as_declared, range_problems
from florets.task.randomness import Purpose, generator
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.leaving import FOLDS, GRADIENTS, MASKED, MODELS
from florets.task.wire.narrow import Narrowing
from florets.task.wire.records import filled
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=State)


class Algorithm(ABC, Generic[S, M]):
    """The questions that a strategy answers; `Strategy` asks them, round by round.

    Attributes
    ----------
    settings
        The algorithm's own keys; never changed.
    state
        All that the algorithm remembers: what a checkpoint holds. Everything else is made anew.
    k
        Number of clusters, "auto" where the algorithm is to find it; None: as many as there are models.
    first_round, choose_k, loss_data
        Run-level choices; None where the algorithm has no such choice.
    loss_batch
        Samples that losses are taken on while clustering; None: all.
    input_shape, num_outputs, loss
        Sizes of the task, and its loss (`florets.task.training.losses`); empty where nobody said.
    seed
        Of every draw; take generators from `Round.random`.
    personal
        What clients have of their own within the algorithm's groups; None: nothing.
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
    """Names of what every run makes leave the clients (`florets.task.wire.leaving`): a node that never sends one of
    them takes no part."""
    method: ClassVar[type[Method[Any, Any]] | None] = None
    """How clients train within their groups; None: local training as the run has it."""

    settings: S
    state: M
    k: int | Literal["auto"] | None
    first_round: FirstRound | None
    choose_k: ChooseK | None
    loss_data: LossData | None
    loss_batch: int | None
    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str
    seed: int
    personal: PersonalMethod[Any, Any] | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        by_method = () if cls.method is None or cls.method.handler is None else (cls.method.handler,)
        cls.client_handlers = handler_paths((*cls.client_handlers, *by_method))

    @abstractmethod
    def plan(self, context: Round) -> Plan[Update]:
        """Decide what this round's participants train; may ask them first (`context.ask_losses`).

        `context` is not changed: another number of models, or other participants than were sampled, are the plan's.
        """

    def plan_evaluation(self, context: Round) -> Plan[TestResult]:
        """Decide what each of `context.testers` tests: by default the model that it is assigned."""
        return context.test_assigned(self.assignment)

    def check(self, models: Models) -> None:
        """Raise ValueError where the algorithm does not fit the first models; called before any client is asked."""
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
    def assignment(self) -> dict[str, int]:
        """Model index of every client that has one, by client key."""
        return self.state.assignment

    @property
    def mixtures(self) -> Mapping[str, FloatArray]:
        """Shares (K,) of the models in each client that mixes them, by key; empty where each has one."""
        return {}

    @property
    def phase(self) -> str:
        """Phase of the current round, for the report."""
        return self.state.phase

    @property
    def first_rounds(self) -> int:
        """Rounds that the algorithm needs before those that `num_rounds` counts."""
        return self.settings.first_rounds

    def estimate_cost(self, models: Models) -> CostEstimate | None:
        """Return what those rounds will cost with the clients that are online; None where there are none."""
        return None

    @property
    def is_frozen(self) -> bool:
        """Whether groups stay as they are, so that of this round's updates the server needs the sums alone.

        Asked after `plan`, for secure aggregation; by default once the phase is "stable".
        """
        return self.phase == "stable"

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Learn from the round's valid updates, in addition to averaging them; by default nothing.

        Called once a round, after the updates were checked and before they are averaged. It may change the state,
        and `assignment`, which is then overwritten by the updates' own models; not the updates, nor the models.
        """

    def details(self) -> dict[str, Detail]:
        """Return what this algorithm alone reports of the round that just ended: by default `state.details`."""
        return self.state.details

    def frozen_clusters(self) -> Frozen | None:
        """Return the clusters that a new client is assigned by; None: it takes the model with the lowest loss."""
        return None

    def own_models(self, models: Models) -> dict[str, FloatArray] | None:
        """Return the model (R,) of each client that has one besides the final `models`; None where none can have."""
        return None if self.personal is None else self.personal.own_models(models, self.assignment)

    def final_models(self, models: Models) -> Models:
        """Return the models that `assignment` refers to at the end of a run: by default the bank's."""
        return models


EvaluateModels = Callable[[int, ArrayRecord], MetricRecord | None]
RoundObserver = Callable[[RoundReport, ArrayRecord], bool | None]


@dataclass(frozen=True)
class Earlier:
    """What an interrupted run has done: its completed rounds, and whether its observer ended it after the last."""

    rounds: int = 0
    stopped: bool = False


NOTHING = Earlier()


class Strategy(Algorithm[S, M], FlowerStrategy):
    """One model per cluster of clients; subclasses decide in `plan` who trains which.

    Parameters
    ----------
    settings
        The algorithm's own; None: its defaults.
    run
        The keys of the run; None: their defaults.
    averaging
        What clients return and how it is averaged, in place of the run's choice.
    input_shape, num_outputs, loss
        Sizes and loss of the task, for the algorithms that need them.
    validation
        Clients test on their validation data too.
    personal
        What clients have of their own within the groups that the algorithm finds; None: their group's model.
    fingerprint
        Hash of the code that clients must run; None accepts any.
    **keys
        Single keys of the run and of the algorithm, in place of those in `run` and `settings`:
        ``CLoVE(k=4, eval_every=5, memory=True)``.

    Raises
    ------
    ValueError
        If a value is of another type or out of its range, or the algorithm cannot follow a choice of the run.
    """

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
        personal: PersonalMethod[Any, Any] | None = None,
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
            *chosen.conflicts(),
            *privacy_problems(chosen, self.run),
            *robust_problems(chosen, self.run),
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
            self.personal.within(lambda: self.state, num_outputs, self.averaging.robust)
        if run.secure_aggregation and (lines := secure_problems(self, self.averaging)):
            raise ValueError(" ".join(lines))
        self.secure = SecureAggregation(run.privacy.min_group) if run.secure_aggregation else None
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
        self.privacy: Guard | None = None
        self.last_round: int | None = None
        self._context: Round | None = None
        self._plan: Plan[Update] | None = None
        self._tests: Plan[TestResult] | None = None
        self._meter: Meter | None = None

    def all_leaving(self) -> frozenset[str]:
        """Return the names of what every run makes leave the clients, in the form in which this one averages."""
        names = {*self.leaving, *(() if self.personal is None else self.personal.leaving)}
        form = GRADIENTS if isinstance(self.averaging, GradientAveraging) else MODELS
        # Groups that are known from the start are masked in every round.
        form = MASKED if self.secure is not None and self.is_frozen else form
        if self.first_round == "update" and (self.k == "auto" or self.run.privacy.is_central):
            names.add(FOLDS)
        return frozenset(form if name == MODELS else name for name in names)

    def protect(self, num_rounds: int, earlier: Budget | None = None) -> Guard | None:
        """Set up the run's privacy budget, or go on with an `earlier` one; None where no noise is asked for.

        Where rounds sample a fraction of the clients, a client's budget is for that fraction of the rounds.
        """
        privacy = self.run.privacy
        releases = self.settings.releases(privacy.kind)
        if not privacy.has_noise or releases is None:
            return None
        # The small constant keeps products such as 0.07 * 100 from adding a round by rounding.
        rounds = self.first_rounds + num_rounds
        visits = max(1, math.ceil(self.settings.fraction_train * rounds - 1e-9))
        start = releases.start if self.first_round == "update" else 0
        compared = COST * min(releases.compared, visits, rounds if self.first_round == "evaluate" else rounds - 1)
        releases = replace(releases, before=releases.before + start + compared)
        if privacy.hides_records:
            self.privacy = ExampleGuard(privacy, releases, visits, earlier)
            return self.privacy
        budget = earlier or Budget.planned(privacy, releases, visits, self.run.num_clients or 1)
        # Of masked updates the server sees no lengths.
        known = privacy if self.secure is None else replace(privacy, clip=privacy.known_clip)
        self.privacy = Guard(known, releases, budget)
        return self.privacy

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """Results of the last test evaluation, by client key."""
        return self.state.evaluations

    @property
    def context(self) -> Round:
        """The current round, or the last one; before the first there is none (RuntimeError)."""
        if self._context is None:
            raise RuntimeError("there is no round before the first call of configure_train")
        return self._context

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, let the algorithm plan, and return the messages of the training exchange."""
        if self.last_round is None:
            refuse_wrapper(self)
            if self.run.privacy.has_noise:
                raise ValueError(
                    "privacy.kind: the noise depends on the number of rounds; call start of the strategy"
                )
        self.open_round(server_round, arrays, config, grid)
        if self.privacy is not None:
            self.privacy.begin(self.context.participants, self.context.online)
        self.state.evaluations, self.state.confusions, self.state.details = {}, {}, {}
        if self.state.quarantine is not None:
            self.state.quarantine.begin_round()
        # Under local privacy an exchange has a price, and a quarantine must not end the budget.
        if self.phase == "stable" and self.privacy is None:
            move_quarantined(self.state, self.context)
        plan = self._plan = self.plan(self.context)
        if not isinstance(plan, Plan):
            raise TypeError(f"{type(self).__name__}.plan() returned {plan!r}, and must return a Plan")
        # Round 1 may find groups in a way of its own.
        if isinstance(self.personal, Method) and server_round > self.first_rounds + 1 and plan.requests:
            self.personal.refuse_unused(type(self).__name__, plan, server_round)
        self._context = replace(
            self.context,
            models=plan.models or self.context.models,
            participants=self.context.participants if plan.participants is None else list(plan.participants),
        )
        if self.secure is not None:
            plan = self._plan = self._in_secret(self.secure, plan)
        if self.privacy is not None:
            self.privacy.charge_training([request.key for request in plan.requests], self.assignment)
        return [request.message for request in plan.requests]

    def _in_secret(self, secure: SecureAggregation, plan: Plan[Update]) -> Plan[Update]:
        """Return the plan with masked updates where groups are frozen; say so where they never were."""
        if self.is_frozen and plan.requests:
            plan = secure.plan(self.context, plan)
            self.state.details = {**self.state.details, SUMMED: float(len(plan.requests))}
        elif self.context.server_round == self.last_round and not secure.has_summed:
            advice = "secure_aggregation=true: groups were not fixed in any round: all updates came in clear"
            self.state.details = {**self.state.details, ADVICE: advice}
        return plan

    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Look who is there, sample this round's participants, and make its context."""
        # Another try of the same round adds to the round's figures.
        self._meter = self._meter or Meter()
        self._meter.tries += 1
        self.federation.refresh(grid, config)
        self.federation.begin_round(server_round)
        unchanged = self._context is not None and arrays is self._context.models.record
        models = self.context.models if unchanged else Models(arrays, self.shared_layers, untrained_of(config))
        narrowing = self.context.narrowing if unchanged else None
        if narrowing is None and self.run.wire != "float32":
            narrowing = Narrowing(self.run.wire, [entry.name for entry in models.layout.entries if entry.is_trained])
        self._context = Round(
            server_round=server_round,
            seed=self.seed,
            config=with_loss_samples(self._noising(config), self.loss_data, self.loss_batch),
            grid=grid,
            online=self.federation.online(),
            participants=self.federation.sample(
                self.settings.fraction_train,
                generator(self.seed, server_round, Purpose.PARTICIPATION),
                None if self.privacy is None else self.privacy.can_pay,
            ),
            models=models,
            averaging=replace(
                self.averaging.in_round(config, server_round), note=self._meter.count_kept, privacy=self.privacy
            ),
            timeout=self.round_timeout,
            quorum=self.run.quorum,
            grace=self.run.grace,
            meter=self._meter,
            evaluation=self.evaluation,
            client_handlers=self.client_handlers,
            personal=self.personal,
            narrowing=narrowing,
            privacy=self.privacy,
        )

    def _noising(self, config: ConfigRecord) -> ConfigRecord:
        """Return messages' settings with how clients noise what they send, where they do."""
        own = {} if self.privacy is None else self.privacy.settings
        return filled(config.copy(), own) if own else config

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the updates into the next K models; a model that nobody trained keeps its parameters."""
        if self._plan is None:
            raise RuntimeError("aggregate_train was called before configure_train")
        context = self.context
        if not self._plan.requests:
            raise RoundFailed(f"round {server_round}: none of its participants had anything to train")
        give_back_freed(context.models.layout.size * np.dtype(np.float32).itemsize * len(self._plan.requests))
        updates = context.triage(self._plan.requests, list(replies), self._plan.read)
        if self._plan.reveal is not None:
            context.require(updates, "masked update")
            updates = self._plan.reveal(updates)
            if not updates.ok:
                # A round that members have revealed shares in is not tried again.
                log.warning("round %d: no sum could be unmasked; all models stay as they are", server_round)
                return context.models.record, None
        if self.privacy is None:
            # Clipped updates need none, and who is an outlier depends on the others' data.
            updates = context.reject_outliers(updates)
        if self._plan.reveal is None:
            context.require(updates, "update")
        context.meter.count_training(updates.ok)
        if slowed := [key for key, update in updates.ok if update.halvings]:
            if len(slowed) == len(updates.ok):
                raise TrainingDiverged(f"round {server_round}: training diverged at all of its {len(slowed)} clients")
            log.warning(
                "round %d: training diverged at %s, and went on with half of the learning rate, or less (halvings in "
                "clients_over_rounds.csv); lower train.learning_rate",
                server_round,
                named(slowed),
            )
        shared = updates.ok if self._plan.keep is None else self._plan.keep(updates.ok)
        self.after_training(shared)
        with context.meter.part("aggregate"):
            self.assignment.update({key: update.model for key, update in shared})
            combine = self._plan.combine or self.average
            bank = combine(shared)
            if self.privacy is not None:
                bank = self.privacy.merged(bank, self.assignment)
            models = context.models.replaced(bank)
            narrowing = None if context.narrowing is None else context.narrowing.fresh()
            self._context = replace(context, models=models, narrowing=narrowing)
        weights = [update.num_examples for _, update in updates.ok]
        loss = self.state.train_loss = float(np.average([u.train_loss for _, u in updates.ok], weights=weights))
        return self.context.models.record, MetricRecord({kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: sum(weights)})

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Return the next bank (K, R): each model's updates averaged as `averaging` says.

        A subclass may leave updates out or weight them otherwise; it must return all K models, and change neither the
        updates nor the models (`context.models`).
        """
        rows = trusted_updates(self.state, self.context, updates)
        bank = self.context.averaging.next_bank(self.context.models, rows, rows.models, rows.examples)
        return bank if self.personal is None else self.personal.averaged(self.context.models, rows.updates, bank)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the clients that have a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.run.eval_every == 0 or server_round == self.last_round
        asked = self.context.participants if self.run.eval_clients == "participants" else self.federation.online()
        if self.privacy is not None and self.privacy.is_local and not self.federation.is_simulated:
            # Test scores have no noise: only of one's own simulation are they taken.
            due = False
        self._tests = self.plan_evaluation(replace(self.context, config=config, testers=asked if due else []))
        return [request.message for request in self._tests.requests]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Keep every client's test result and return their unweighted means."""
        if self._tests is None:
            raise RuntimeError("aggregate_evaluate was called before configure_evaluate")
        tests = sort_replies(self._tests.requests, list(replies), self._tests.read)
        self.context.meter.count(tests)
        self.state.evaluations = {key: evaluation_of(test) for key, test in tests.ok}
        self.state.confusions = confusions_of(tests.ok, self.assignment)
        return mean_results(self.evaluations.values())

    def restore(self, state: M, arrays: ArrayRecord) -> None:
        """Take an earlier round's state and models for those that the run ends with."""
        models = Models(arrays, self.shared_layers, self.context.models.untrained)
        self.state, self._context = state, replace(self.context, models=models)

    def summary(self) -> None:
        """Log what is about to run."""
        shared = f", shared layers {', '.join(self.shared_layers)}" if self.shared_layers else ""
        name, rate = type(self).__name__, self.settings.fraction_train
        log.info("%s: participation %g, %s%s", name, rate, self.averaging, shared)

    def initialize_parameters(self, client_manager: object) -> None:
        """Refuse to work for a workflow of Flower's old interface, which asks for this before anything else."""
        raise ValueError(
            f"{type(self).__name__} runs its own rounds, which Flower's workflows (DefaultWorkflow, "
            "SecAggPlusWorkflow) do not reach: call its start, for secure aggregation with secure_aggregation=true"
        )

    @seldom_collected()
    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateModels | None = None,
        on_round: RoundObserver | None = None,
        earlier: Earlier = NOTHING,
    ) -> Result:
        """Run the rounds.

        Parameters
        ----------
        num_rounds
            Rounds after the algorithm's `first_rounds`.
        initial_arrays
            K models with numbered entries (`florets.task.wire.bank`), or one plain model.
        timeout
            Seconds to wait for the replies of one exchange; None keeps `round_timeout`.
        train_config, evaluate_config
            Settings sent with every message; `evaluate_config` None takes those of `train_config`.
        evaluate_fn
            Called with the round and all K models before the first round and after each.
        on_round
            Called with each round's report and models; returning True ends the run.
        earlier
            What an interrupted run has done, when it goes on: `state` is its state, `initial_arrays` its models.

        Raises
        ------
        FederationError
            If the clients cannot run this experiment, or a round stays below the quorum in all its tries.
        RuntimeError
            On a second call.
        """
        if self._context is not None:
            raise RuntimeError(f"this {type(self).__name__} has already run and holds state; build a new one")
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.summary()
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or train_config
        last = self.last_round = self.first_rounds + num_rounds
        if self.privacy is None:
            self.protect(num_rounds)
        if isinstance(self.privacy, ExampleGuard):
            self.privacy.training = Training.received(train_config)
        train_config, evaluate_config = self._noising(train_config), self._noising(evaluate_config)
        self.check(Models(initial_arrays, self.shared_layers, untrained_of(train_config)))
        result = Result(arrays=initial_arrays)
        _evaluate_on_server(result, earlier.rounds, evaluate_fn)
        if earlier.rounds and (earlier.stopped or earlier.rounds >= last):
            # The interrupted run has trained to its end: what is left to do needs clients and a round to ask them in.
            self.open_round(earlier.rounds, result.arrays, train_config, grid)
            self.close_round(earlier.rounds)
            self._evaluate_at_end(grid, result, earlier.rounds, evaluate_config)
            return result
        for server_round in range(earlier.rounds + 1, last + 1):
            # 1. Train: the strategy may ask clients first, inside configure_train.
            try:
                arrays, train_metrics = self._train(grid, result.arrays, server_round, train_config)
            except BudgetSpent as end:
                if self.privacy is None or (self._context is None and not earlier.rounds):
                    raise
                self.privacy.ended = str(end)
                log.warning("%s", end)
                if self._context is None:
                    self.open_round(earlier.rounds, result.arrays, train_config, grid)
                    self.close_round(earlier.rounds)
                self._evaluate_at_end(grid, result, self.context.server_round, evaluate_config)
                break
            result.arrays = result.arrays if arrays is None else arrays
            if train_metrics is not None:
                result.train_metrics_clientapp[server_round] = train_metrics
            # 2. Test the new models, where it is due.
            self._evaluate_on_clients(grid, result, server_round, evaluate_config)
            _evaluate_on_server(result, server_round, evaluate_fn)
            # 3. Report; whoever watches may end the run.
            report = self.close_round(server_round)
            if on_round and on_round(report, result.arrays):
                self._evaluate_at_end(grid, result, server_round, evaluate_config)
                break
        return result

    def _train(
        self, grid: Grid, arrays: ArrayRecord, server_round: int, config: ConfigRecord
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Run a round's exchanges up to its next models; below the quorum once more, from the state before it."""
        tries = self.run.round_tries
        for attempt in range(1, tries + 1):
            try:
                return self.attempt(server_round, arrays, config, grid)
            except RoundFailed as failure:
                if failure.certain or attempt == tries:
                    after = f" (tried {attempt} times)" if attempt > 1 else ""
                    kind = TrainingDiverged if isinstance(failure, TrainingDiverged) else FederationError
                    raise kind(f"{failure}{after}") from None
                log.warning("%s. The round is repeated: try %d of %d", failure, attempt + 1, tries)
        raise ValueError(f"round_tries={tries}: must be at least 1")

    def _evaluate_at_end(self, grid: Grid, result: Result, server_round: int, config: ConfigRecord) -> None:
        if not self.evaluations:
            self.last_round = server_round
            self._evaluate_on_clients(grid, result, server_round, config)

    def _evaluate_on_clients(self, grid: Grid, result: Result, server_round: int, config: ConfigRecord) -> None:
        """Test the round's models where it is due."""
        with self.context.meter.part("evaluate"):
            messages = self.configure_evaluate(server_round, result.arrays, config, grid)
            replies = send(grid, messages, self.context.patience, self.context.name_of)
            metrics = self.aggregate_evaluate(server_round, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[server_round] = metrics

    def attempt(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Run a round's exchanges up to its next models; where they fail, the state is as it was before.

        Raises
        ------
        FederationError
            If the clients cannot run it; `RoundFailed` where trying again may help.
        """
        before, last = snapshot(self.state), self._context
        try:
            messages = self.configure_train(server_round, arrays, config, grid)
            with self.context.meter.part("train"):
                replies = send(grid, messages, self.context.patience, self.context.name_of)
            return self.aggregate_train(server_round, replies)
        except FederationError:
            # Of the failed try only its figures stay, in the round's meter: what is saved now is the last good round.
            self.state, self._context = before, last
            raise

    def close_round(self, server_round: int) -> RoundReport:
        """Return the report of the round that just ended."""
        meter = self.context.meter
        meter.finish()
        if meter.compared is None and self.mixtures:
            self.context.note_vectors("shares", list(self.mixtures), list(self.mixtures.values()))
        self._meter = None
        return RoundReport(
            server_round=server_round,
            phase=self.phase,
            participants=tuple(client.key for client in self.context.participants),
            assignment=dict(self.assignment),
            num_clusters=len(set(self.assignment.values())),
            stable=self.phase == "stable",
            bytes_down=meter.bytes_down,
            bytes_up=meter.bytes_up,
            seconds=dict(meter.seconds),
            replies=dict(meter.replies),
            train_loss=self.state.train_loss,
            evaluations=dict(self.evaluations),
            confusions=dict(self.state.confusions),
            work=meter.work,
            details={
                **self.details(),
                **quarantine_details(self.state, self.context),
                **({} if self.privacy is None else {PRIVACY: self.privacy.details}),
            },
            tries=meter.tries,
            rejected=dict(meter.rejected),
            clients=meter.clients,
            compared=meter.compared,
        )


def _evaluate_on_server(result: Result, server_round: int, evaluate_fn: EvaluateModels | None) -> None:
    if evaluate_fn and (metrics := evaluate_fn(server_round, result.arrays)) is not None:
        result.evaluate_metrics_serverapp[server_round] = metrics


def with_loss_samples(config: ConfigRecord, loss_data: LossData | None, batch: int | None) -> ConfigRecord:
    """Return the settings of a round's messages, with the samples that losses are taken on."""
    # Where losses are held out, clients train on the rest alone.
    held_out = {kinds.LOSS_DATA: kinds.HELD_OUT} if loss_data == "held_out" else {}
    drawn = {} if batch is None else {kinds.LOSS_BATCH: batch}
    return filled(config.copy(), {**held_out, **drawn}) if held_out or drawn else config


def refuse_wrapper(strategy: FlowerStrategy) -> None:
    """Refuse to work for another strategy's hooks; call it where `strategy.start` is not what runs the rounds.

    A wrapper changes the one model that it expects in `configure_train`, `aggregate_train` and their messages. Here K
    models travel, the strategy also asks clients in exchanges that do not pass through the wrapper, and it keeps its
    own models, without the wrapper's noise: clipping would clip nothing, or something else, and nobody would be told.
    A wrapper holds its inner strategy, which has no reference to it, so it is looked for among the callers.

    Raises
    ------
    ValueError
        If a method of another strategy is among the callers.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        caller = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(caller, FlowerStrategy) and caller is not strategy:
            wrapper, inner = type(caller).__name__, type(strategy).__name__
            raise ValueError(
                f"{wrapper} around {inner}: a wrapper does not reach all that {inner} asks of its clients and keeps "
                f"of their replies, so it has no effect; call start of the {inner} itself, without {wrapper}. For "
                "differential privacy run with privacy.kind=central or local. An averaging of your own goes into the "
                "strategy's plan, see docs/extending.md."
            )
        frame = frame.f_back
