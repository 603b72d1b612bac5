"""`Strategy`: an algorithm as a Flower Strategy: it says what happens in a round, and this class runs the rounds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from florets.strategies.base.evaluation import EvaluationSettings, confusions_of, evaluation_of, mean_results
from florets.strategies.base.exchange import Meter, log, sort_replies
from florets.strategies.base.federation import Federation, RoundFailed, TrainingDiverged
from florets.strategies.base.layer import Layer
from florets.strategies.base.loop import NOTHING, Earlier, EvaluateModels, RoundObserver, run_rounds
from florets.strategies.base.method import Method, PersonalMethod
from florets.strategies.base.models import Averaging, GradientAveraging, Models, averaging_of, untrained_of
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import CostEstimate, Detail, Evaluation, RoundReport, State, named
from florets.strategies.base.round import Plan, Round, Sealed, Steps, handler_paths
from florets.strategies.core import FloatArray
from florets.strategies.layers.coverage import least_clients, protection_problems, too_few
from florets.strategies.settings import (
    Averages,
    ChooseK,
    FirstRound,
    LossData,
    RunKeys,
    Settings,
    choice_of,
    loss_batch_of,
    start_with,
)
from florets.task.device import give_back_freed
from florets.task.keys import as_declared, range_problems
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.flower import filled
from florets.task.wire.leaving import CHOICES, FOLDS, GRADIENTS, LOSS_VECTORS, MASKED, MODELS
from florets.task.wire.narrow import Narrowing
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=State)


class Strategy(FlowerStrategy, ABC, Generic[S, M]):
    """One model for each group of clients; a subclass says in `round` who trains which.

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
        ``CLoVE(k=4, eval_every=5, stability_rounds=2)``.

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
            self.personal.within(lambda: self.state, num_outputs, self.averaging.robust)
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
        self.layers: tuple[Layer, ...] = ()
        self.privacy: Any = None
        self.last_round: int | None = None
        self.last: Round | None = None
        self._steps: Steps
        self._plan: Plan[Update] | None = None
        self._tests: Plan[TestResult] | None = None
        self._meter: Meter | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        by_method = () if cls.method is None or cls.method.handler is None else (cls.method.handler,)
        cls.client_handlers = handler_paths((*cls.client_handlers, *by_method))

    @abstractmethod
    def round(self, r: Round) -> Steps:
        """Run a round: ask clients what there is to ask, yield the training exchange, return the next models.

        It yields once, a plan (`Round.train`), and is given the valid updates, pairs of a client's key and its update
        in the order of the keys. By then `assignment` has the updates' models. It returns the next bank (K, R), as
        `Round.average` makes it; None leaves the models as they are. Where too few updates came, `RoundFailed` is
        raised at the yield; the state is then as it was before the round, unless the algorithm catches it.
        """

    def test(self, r: Round) -> Plan[TestResult]:
        """Decide what each of `r.testers` tests: by default the model that it is assigned."""
        return r.test_assigned(self.assignment)

    def begins(self, groups: Mapping[str, int], are_found: bool) -> None:
        """Take over the groups of a first round that is not the algorithm's own; see `strategies.starts`.

        They are found by updates, or drawn at random. Updates come after that.
        """

    def reopen(self) -> None:
        """Group clients anew from this round on, where groups were frozen."""

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

    def all_leaving(self) -> frozenset[str]:
        """Return the names of what every run makes leave the clients, in the form in which this one averages."""
        names = {*self.leaving, *(() if self.personal is None else self.personal.leaving)}
        form = GRADIENTS if isinstance(self.averaging, GradientAveraging) else MODELS
        # Groups that are known from the start are masked in every round.
        form = MASKED if self.run.secure_aggregation and self.is_frozen else form
        if self.first_round == "update" and (self.k == "auto" or self.run.privacy.is_central):
            names.add(FOLDS)
        if "folds" in self.settings.asks and self.run.privacy.is_central:
            names |= {CHOICES, LOSS_VECTORS}
        return frozenset(form if name == MODELS else name for name in names)

    def protect(self, num_rounds: int, earlier: Any = None) -> Any:
        """Set up the layers, for a run of so many rounds; return its privacy budget, or None without noise.

        An `earlier` budget goes on.
        """
        from florets.strategies.layers.compose import compose

        self.layers, self.privacy = compose(self, num_rounds, earlier)
        return self.privacy

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """Results of the last test evaluation, by client key."""
        return self.state.evaluations

    @property
    def context(self) -> Round:
        """The current round, or the last one; before the first there is none (RuntimeError)."""
        if self.last is None:
            raise RuntimeError("there is no round before the first call of configure_train")
        return self.last

    def with_layers(self, config: ConfigRecord) -> ConfigRecord:
        """Return messages' settings with those of the layers."""
        own = {name: value for layer in self.layers for name, value in layer.message.items()}
        return filled(config.copy(), own) if own else config

    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Look who is there, sample this round's participants, and make its `Round`."""
        # Another try of the same round adds to the round's figures.
        self._meter = self._meter or Meter()
        self._meter.tries += 1
        self.federation.refresh(grid, config)
        self.federation.begin_round(server_round)
        unchanged = self.last is not None and arrays is self.last.models.record
        models = self.context.models if unchanged else Models(arrays, self.shared_layers, untrained_of(config))
        narrowing = self.context.narrowing if unchanged else None
        if narrowing is None and self.run.wire != "float32":
            narrowing = Narrowing(self.run.wire, [entry.name for entry in models.layout.entries if entry.is_trained])
        averaging = replace(self.averaging.in_round(config, server_round), note=self._meter.count_kept)
        for layer in self.layers:
            averaging = layer.averaging(averaging)
        self.last = Round(
            server_round=server_round,
            seed=self.seed,
            config=with_loss_samples(config, self.loss_data, self.loss_batch),
            grid=grid,
            online=self.federation.online(),
            participants=self.federation.sample(
                self.settings.fraction_train,
                generator(self.seed, server_round, Purpose.PARTICIPATION),
                lambda client: all(layer.can_take_part(client) for layer in self.layers),
            ),
            models=models,
            averaging=averaging,
            timeout=self.round_timeout,
            quorum=self.run.quorum,
            grace=self.run.grace,
            meter=self._meter,
            evaluation=self.evaluation,
            client_handlers=self.client_handlers,
            personal=self.personal,
            narrowing=narrowing,
            privacy=self.privacy,
            strategy=self,
            layers=self.layers,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, run the algorithm up to its training exchange, and return that one's messages."""
        from florets.strategies.starts.start import begun

        if self.last_round is None:
            raise ValueError(
                f"{type(self).__name__} runs its own rounds: call its start. What wraps a strategy and calls its "
                "hooks, such as Flower's wrappers for differential privacy, reaches neither all that it asks of its "
                "clients nor what it keeps of their replies; use privacy.kind=central or local"
            )
        self.open_round(server_round, arrays, config, grid)
        r = self.context
        self.state.evaluations, self.state.confusions, self.state.details = {}, {}, {}
        for layer in self.layers:
            layer.begin(r)
        self._steps = begun(self, r)
        if not isinstance(self._steps, Generator):
            raise TypeError(f"{type(self).__name__}.round() returned {self._steps!r}: it must yield a plan")
        try:
            plan = next(self._steps)
        except StopIteration:
            plan = None
        if not isinstance(plan, Plan):
            raise TypeError(f"{type(self).__name__}.round() yielded {plan!r}: it must yield a plan (Round.train)")
        # Round 1 may find groups in a way of its own.
        if isinstance(self.personal, Method) and server_round > self.first_rounds + 1 and plan.requests:
            self.personal.refuse_unused(type(self).__name__, plan, server_round)
        for layer in self.layers:
            plan = layer.trains(plan, r)
        self._plan = plan
        return [request.message for request in plan.requests]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the algorithm the valid updates, and return its next models; one that nobody trained stays."""
        plan, r = self._plan, self.context
        if plan is None:
            raise RuntimeError("aggregate_train was called before configure_train")
        try:
            updates = self._valid(plan, list(replies))
        except RoundFailed as problem:
            failure = problem
            # An algorithm may go on without them.
            self._end(lambda: self._steps.throw(failure))
            return None, None
        if updates is None:
            return r.models.record, None
        r.answered = [key for key, _ in updates]
        losses = [(key, update.losses) for key, update in updates if update.losses is not None]
        r.note_vectors("losses", [key for key, _ in losses], [own for _, own in losses])
        shared = updates if plan.keep is None else plan.keep(updates)
        with r.meter.part("aggregate"):
            self.assignment.update({key: update.model for key, update in shared})
            why = next((why for layer in self.layers if (why := layer.seals)), "")
            given = Sealed(shared, why) if why else shared
            bank = self._end(lambda: self._steps.send(given))
            bank = r.models.bank if bank is None else bank
            for layer in self.layers:
                bank = layer.combined(bank, r)
            models = r.models.replaced(bank)
            narrowing = None if r.narrowing is None else r.narrowing.fresh()
            self.last = replace(r, models=models, narrowing=narrowing)
        weights = [update.num_examples for _, update in updates]
        loss = self.state.train_loss = float(np.average([u.train_loss for _, u in updates], weights=weights))
        return models.record, MetricRecord({kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: sum(weights)})

    def _end(self, go: Callable[[], object]) -> FloatArray | None:
        """Return what the algorithm's round returns after its training exchange."""
        try:
            go()
        except StopIteration as end:
            bank: FloatArray | None = end.value
            return bank
        raise TypeError(f"{type(self).__name__}.round() yielded twice: a round has one training exchange")

    def _valid(self, plan: Plan[Update], replies: list[Message]) -> Sequence[tuple[str, Update]] | None:
        """Return the valid updates of the training exchange; None where no sum of masked ones could be read.

        Raises
        ------
        RoundFailed
            Where there are too few.
        """
        r = self.context
        if not plan.requests:
            raise RoundFailed(f"round {r.server_round}: none of its participants had anything to train")
        give_back_freed(r.models.layout.size * np.dtype(np.float32).itemsize * len(plan.requests))
        updates = r.triage(plan.requests, replies, plan.read)
        if plan.reveal is not None:
            r.require(updates, "masked update")
            updates = plan.reveal(updates)
            if not updates.ok:
                # A round that members have revealed shares in is not tried again.
                log.warning("round %d: no sum could be unmasked; all models stay as they are", r.server_round)
                return None
        for layer in self.layers:
            updates = layer.updates(updates, r)
        if plan.reveal is None:
            r.require(updates, "update")
        r.meter.count_training(updates.ok)
        if slowed := [key for key, update in updates.ok if update.halvings]:
            if len(slowed) == len(updates.ok):
                raise TrainingDiverged(
                    f"round {r.server_round}: training diverged at all of its {len(slowed)} clients"
                )
            log.warning(
                "round %d: training diverged at %s, and went on with half of the learning rate, or less (halvings in "
                "clients_over_rounds.csv); lower train.learning_rate",
                r.server_round,
                named(slowed),
            )
        return updates.ok

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the clients that have a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.run.eval_every == 0 or server_round == self.last_round
        asked = self.context.participants if self.run.eval_clients == "participants" else self.federation.online()
        due = due and all(layer.allows_tests(self.context) for layer in self.layers)
        self._tests = self.test(replace(self.context, config=config, testers=asked if due else []))
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

    def close_round(self, server_round: int) -> RoundReport:
        """Return the report of the round that just ended."""
        r = self.context
        r.meter.finish()
        if r.meter.compared is None and self.mixtures:
            r.note_vectors("shares", list(self.mixtures), list(self.mixtures.values()))
        self._meter = None
        of_layers = {name: detail for layer in self.layers for name, detail in layer.details(r).items()}
        return RoundReport(
            server_round=server_round,
            phase=self.phase,
            participants=tuple(client.key for client in r.participants),
            assignment=dict(self.assignment),
            num_clusters=len(set(self.assignment.values())),
            stable=self.phase == "stable",
            bytes_down=r.meter.bytes_down,
            bytes_up=r.meter.bytes_up,
            seconds=dict(r.meter.seconds),
            replies=dict(r.meter.replies),
            train_loss=self.state.train_loss,
            evaluations=dict(self.evaluations),
            confusions=dict(self.state.confusions),
            work=r.meter.work,
            details={**self.details(), **of_layers},
            tries=r.meter.tries,
            rejected=dict(r.meter.rejected),
            clients=r.meter.clients,
            compared=r.meter.compared,
        )

    def restore(self, state: M, arrays: ArrayRecord) -> None:
        """Take an earlier round's state and models for those that the run ends with."""
        models = Models(arrays, self.shared_layers, self.context.models.untrained)
        self.state, self.last = state, replace(self.context, models=models)

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
        if self.last is not None:
            raise RuntimeError(f"this {type(self).__name__} has already run and holds state; build a new one")
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.last_round = self.first_rounds + num_rounds
        self.summary()
        train_config = train_config or ConfigRecord()
        if self.privacy is None:
            self.protect(num_rounds)
        return run_rounds(
            *(self, grid, initial_arrays, train_config, evaluate_config or train_config),
            *(evaluate_fn, on_round, earlier),
        )


def with_loss_samples(config: ConfigRecord, loss_data: LossData | None, batch: int | None) -> ConfigRecord:
    """Return the settings of a round's messages, with the samples that losses are taken on."""
    # Where losses are held out, clients train on the rest alone.
    held_out = {kinds.LOSS_DATA: kinds.HELD_OUT} if loss_data == "held_out" else {}
    drawn = {} if batch is None else {kinds.LOSS_BATCH: batch}
    return filled(config.copy(), {**held_out, **drawn}) if held_out or drawn else config
