"""`Strategy`: an algorithm as a Flower Strategy, whose hooks run its rounds with the layers around them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from florets.strategies.base.exchange import Meter, handler_path, log, sort_replies
from florets.strategies.base.federation import Federation, RoundFailed
from florets.strategies.base.groups import Frozen, sealed
from florets.strategies.base.layer import Layer
from florets.strategies.base.loop import Earlier, EvaluateModels, RoundObserver, run_rounds
from florets.strategies.base.method import LocalTraining, Method, personal_method
from florets.strategies.base.models import Averaging, GradientAveraging, Models, averaging_of, untrained_of
from florets.strategies.base.report import Detail, RoundReport, State
from florets.strategies.base.round import Plan, Round, Steps, Tests
from florets.strategies.core import FloatArray
from florets.strategies.coverage import least_clients, protection_problems, too_few
from florets.strategies.settings import (
    Averages,
    ChooseK,
    FirstRound,
    RunKeys,
    Settings,
    choice_of,
    start_with,
)
from florets.task.keys import as_declared, range_problems
from florets.task.randomness import Purpose, generator
from florets.task.tested import Evaluation
from florets.task.wire import kinds
from florets.task.wire.evaluation import read_evaluation
from florets.task.wire.flower import filled
from florets.task.wire.leaving import FOLDS, GRADIENTS, MASKED, MODELS
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=State)


class Strategy(FlowerStrategy, ABC, Generic[S, M]):
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
    State: ClassVar[type[Any]] = State
    client_handlers: ClassVar[tuple[Any, ...]] = ()
    """The algorithm's own client handlers, functions or import paths ``package.module:function``."""
    leaving: ClassVar[tuple[str, ...]] = (MODELS,)
    """Names of what leaves the clients in every run (`florets.task.wire.leaving`)."""
    method: ClassVar[type[Method[Any, Any]]] = LocalTraining
    """How clients train within their groups."""

    k: int | Literal["auto"] | None
    first_round: FirstRound | None
    choose_k: ChooseK | None
    layers: tuple[Layer, ...] = ()
    """Set up by `protect`, as the run's budget, `privacy`."""
    privacy: Any = None
    last_round: int | None = None
    last: Round | None = None
    _steps: Steps
    _plan: Plan[Update]
    _tests: Tests
    _meter: Meter | None = None

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
        self.k, self.seed, self.round_timeout, self.loss_batch = run.k, run.seed, run.round_timeout, run.loss_batch
        self.averaging = averaging if isinstance(averaging, Averaging) else averaging_of(self.settings, run)
        self.choose_k = choice_of(self.settings, "choose_k", run.choose_k)
        self.loss_data = choice_of(self.settings, "loss_data", run.loss_data)
        self.first_round = choice_of(self.settings, "first_round", start_with(self.settings, run, self.choose_k))
        self.input_shape, self.num_outputs, self.loss = tuple(input_shape), num_outputs, loss
        self.shared_layers = tuple(getattr(self.settings, "shared_layers", ()))
        more = {
            kinds.FINE_TUNE_EPOCHS: run.fine_tune_epochs,
            kinds.VALIDATION: validation,
            kinds.TEST_SUMS: run.statistics,
        }
        # What clients do besides a test of the model that they are sent.
        self.test_settings = {name: value for name, value in more.items() if value}
        personal = personal_method(choice_of(self.settings, "personal", run.personal))
        if self.method is not LocalTraining and personal is not None:
            raise ValueError(f"personal={personal.name}: {type(self).__name__} has its own method; leave it out")
        self.personal: Method[Any, Any] = (personal or self.method)(self.settings)
        self.personal.within(self)
        self.state: M = self.State()
        # Noise or masks of fewer would fail in round 1.
        least = max(run.min_clients or run.num_clients or 1, least_clients(self.settings, run))
        batches = {kinds.LOSS_BATCH: self.loss_batch, kinds.GRADIENT_BATCH: getattr(self.averaging, "batch", None)}
        self.federation = Federation(
            *(run.num_clients, run.start_timeout, fingerprint, least, self.client_handlers, self.all_leaving()),
            compares=not run.privacy.has_noise,
            subsets={key: size for key, size in batches.items() if size},
        )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        handlers = filter(None, (*cls.client_handlers, cls.method.handler))
        cls.client_handlers = tuple(dict.fromkeys(map(handler_path, handlers)))

    @abstractmethod
    def round(self, r: Round) -> Steps:
        """Run a round: ask clients what is needed, yield the training exchange, return the next models.

        It yields once, a plan (`Round.train`), and is given the valid updates, pairs of a client's key and its update
        in the order of the keys. By then `assignment` has the updates' models. It returns the next bank (K, R), as
        `Round.average` makes it; `r.models.bank` leaves the models as they are. Where too few updates came,
        `RoundFailed` is raised at the yield; the state is then as it was before the round, unless the algorithm
        catches it.
        """

    def test(self, r: Round) -> Tests:
        """Decide what each of `r.testers` tests: by default the model that it is assigned."""
        return self.personal.test(r, self.assignment)

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
        self.personal.check(models)
        if models.layout.untrained.any() and self.run.privacy.has_noise:
            raise ValueError(
                "privacy.kind: the model keeps running statistics or counters of its inputs, to which no noise is "
                "added; use one without batch normalisation"
            )

    @property
    def is_frozen(self) -> bool:
        """Whether groups are frozen, so that the server only needs the sums of this round's updates.

        Read after the round has yielded, for secure aggregation; by default true once the phase is "stable".
        """
        return self.state.phase == "stable"

    def details(self) -> dict[str, Detail]:
        """Return what only this algorithm reports of the round that just ended; by default `state.details`."""
        return self.state.details

    def frozen_clusters(self) -> Frozen | None:
        """Return the clusters that newcomers are assigned by; None: they take the model with the lowest loss."""
        return None

    def own_models(self, models: Models) -> dict[str, FloatArray]:
        """Return the model (R,) of each client that has one besides the final `models`."""
        return self.personal.own_models(models, self.assignment)

    def final_models(self, models: Models) -> Models:
        """Return the models that `assignment` refers to at the end of a run: by default the bank's."""
        return models

    def all_leaving(self) -> frozenset[str]:
        """Return the names of what leaves the clients in every run, in the form of this run's averages."""
        names = {*self.leaving, *self.personal.leaving}
        form = GRADIENTS if isinstance(self.averaging, GradientAveraging) else MODELS
        # Groups that are known from the start are masked in every round.
        form = MASKED if self.run.secure_aggregation and self.is_frozen else form
        if self.first_round == "update" and (self.k == "auto" or self.run.privacy.is_central):
            names.add(FOLDS)
        return frozenset(form if name == MODELS else name for name in names)

    @property
    def assignment(self) -> dict[str, int]:
        """Model index of every client that has one, by client key."""
        return self.state.assignment

    @property
    def mixtures(self) -> Mapping[str, FloatArray]:
        """Shares (K,) of the models for each client that mixes them, by key; empty where each has one."""
        return {}

    def protect(self, num_rounds: int, earlier: Any = None) -> Any:
        """Set up the layers for a run of this many rounds; return its budget, a continued `earlier` one."""
        from florets.strategies.layers.compose import compose

        self.layers, self.privacy = compose(self, num_rounds, earlier)
        return self.privacy

    @property
    def context(self) -> Round:
        """The current round, or the last one."""
        assert self.last is not None
        return self.last

    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Find out who is online, sample participants, and make the `Round`."""
        # Another try of the same round adds to the round's figures.
        self._meter = self._meter or Meter()
        self._meter.tries += 1
        self.federation.refresh(grid, config)
        self.federation.begin_round(server_round)
        unchanged = self.last is not None and arrays is self.last.models.record
        models = self.context.models if unchanged else Models(arrays, self.shared_layers, untrained_of(config))
        averaging = replace(self.averaging.in_round(config, server_round), note=self._meter.count_kept)
        for layer in self.layers:
            averaging = layer.averaging(averaging)
        # Where losses are held out, clients train on the rest alone.
        held_out = {kinds.LOSS_DATA: kinds.HELD_OUT} if self.loss_data == "held_out" else {}
        drawn = {} if self.loss_batch is None else {kinds.LOSS_BATCH: self.loss_batch}
        self.last = Round(
            server_round=server_round,
            seed=self.seed,
            strategy=self,
            config=filled(config.copy(), {**held_out, **drawn}),
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
            meter=self._meter,
            layers=self.layers,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, run the algorithm up to its training exchange, and return the messages."""
        from florets.strategies.shared.first_round import begun

        if self.last_round is None:
            raise ValueError(
                f"{type(self).__name__} runs its own rounds: call its start; in place of Flower's wrappers for "
                "differential privacy use privacy.kind=central or local"
            )
        self.open_round(server_round, arrays, config, grid)
        r = self.context
        self.state.evaluations, self.state.details = {}, {}
        for layer in self.layers:
            layer.begin(r)
        self._steps = begun(self, r)
        if not isinstance(self._steps, Generator):
            raise TypeError(f"{type(self).__name__}.round() returned {self._steps!r}: it must yield a plan")
        plan = next(self._steps, None)
        if not isinstance(plan, Plan):
            raise TypeError(f"{type(self).__name__}.round() yielded {plan!r}: it must yield a plan (Round.train)")
        # Round 1 may find groups in a way of its own.
        if server_round > self.settings.rounds_before + 1 and plan.requests:
            self.personal.refuse_unused(r)
        for layer in self.layers:
            plan = layer.trains(plan, r)
        self._plan = plan
        return [request.message for request in plan.requests]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the algorithm the valid updates, and return its next models; a model that nobody trained stays."""
        plan, r = self._plan, self.context
        try:
            updates = r.updates_of(plan, list(replies))
        except RoundFailed as failure:
            # An algorithm may go on without them.
            self._end(partial(self._steps.throw, failure))
            return None, None
        if updates is None:
            return r.models.record, None
        r.answered = [key for key, _ in updates]
        losses = [(key, update.losses) for key, update in updates if update.losses is not None]
        r.note_vectors("losses", [key for key, _ in losses], [own for _, own in losses])
        if plan.keep is not None:
            plan.keep(updates)
        with r.meter.part("aggregate"):
            self.assignment.update({key: update.model for key, update in updates})
            bank = self._end(partial(self._steps.send, sealed(updates, r.seal_of("updates"))))
            for layer in self.layers:
                bank = layer.combined(bank, r)
            models = r.models.replaced(bank)
            self.last = replace(r, models=models)
        weights = [update.num_examples for _, update in updates]
        loss = self.state.train_loss = float(np.average([u.train_loss for _, u in updates], weights=weights))
        return models.record, MetricRecord({kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: sum(weights)})

    def _end(self, go: Callable[[], object]) -> FloatArray:
        """Return what the algorithm's round returns after its training exchange."""
        name = type(self).__name__
        try:
            go()
        except StopIteration as end:
            if end.value is None:
                raise TypeError(
                    f"{name}.round() returned no models: return r.average(updates), or r.models.bank to keep them"
                ) from None
            bank: FloatArray = end.value
            return bank
        raise TypeError(f"{name}.round() yielded twice: a round has one training exchange")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the clients that have a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.run.eval_every == 0 or server_round == self.last_round
        asked = self.context.participants if self.run.eval_clients == "participants" else self.federation.online()
        due = due and all(layer.allows_tests(self.context) for layer in self.layers)
        self._tests = self.test(replace(self.context, config=config, testers=asked if due else []))
        return [request.message for request in self._tests.requests]

    def read_test(self, _: str, content: RecordDict) -> Evaluation:
        """Return the reply to a test, checked for what was asked."""
        asked, classes = self.test_settings, self.num_outputs if self.loss == "cross_entropy" else 0
        sums_of = classes if kinds.TEST_SUMS in asked else None
        return read_evaluation(content, kinds.FINE_TUNE_EPOCHS in asked, kinds.VALIDATION in asked, sums_of)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Keep every client's test result and return their unweighted means."""
        tests = sort_replies(self._tests.requests, list(replies), self._tests.read)
        tests.warn()
        self.context.meter.count(tests)
        self.state.evaluations = dict(tests.ok)
        scores = {
            kinds.EVAL_LOSS: [test.loss for _, test in tests.ok],
            kinds.EVAL_ACCURACY: [test.accuracy for _, test in tests.ok if test.accuracy is not None],
        }
        means = {name: float(np.mean(values)) for name, values in scores.items() if values}
        return MetricRecord(means) if means else None  # type: ignore[arg-type]  # of floats alone

    def close_round(self) -> RoundReport:
        """Return the report of the round that just ended."""
        r = self.context
        if r.meter.compared is None and self.mixtures:
            r.note_vectors("shares", list(self.mixtures), list(self.mixtures.values()))
        self._meter = None
        of_layers = {name: detail for layer in self.layers for name, detail in layer.details(r).items()}
        return RoundReport(
            server_round=r.server_round,
            phase=self.state.phase,
            participants=tuple(client.key for client in r.participants),
            assignment=dict(self.assignment),
            num_clusters=len(set(self.assignment.values())),
            stable=self.state.phase == "stable",
            train_loss=self.state.train_loss,
            evaluations=dict(self.state.evaluations),
            details={**self.details(), **of_layers},
            **r.meter.finish(),
        )

    def restore(self, state: Any, arrays: ArrayRecord) -> None:
        """Let the run end with an earlier round's state and models."""
        models = Models(arrays, self.shared_layers, self.context.models.untrained)
        self.state, self.last = state, replace(self.context, models=models)

    def summary(self) -> None:
        """Log what will run; a hook of Flower's."""
        log.info("%s: participation %g, %s", type(self).__name__, self.settings.fraction_train, self.averaging)

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
        earlier: Earlier | None = None,
    ) -> Result:
        """Run `num_rounds` rounds, after those of `rounds_before`.

        Parameters
        ----------
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
        """
        if self.last is not None:
            raise RuntimeError(f"this {type(self).__name__} has already run and holds state; build a new one")
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.last_round = self.settings.rounds_before + num_rounds
        self.summary()
        train_config = train_config or ConfigRecord()
        if not self.layers:
            self.protect(num_rounds)
        configs = train_config, evaluate_config or train_config
        return run_rounds(self, grid, initial_arrays, *configs, evaluate_fn, on_round, earlier or Earlier())
