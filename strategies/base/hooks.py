"""`Hooks`: Flower's hooks of a strategy; they run an algorithm's rounds with the layers around them."""

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

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
from florets.strategies.base.method import Method
from florets.strategies.base.models import Averaging, Models, untrained_of
from florets.strategies.base.report import Detail, Evaluation, RoundReport, State, named
from florets.strategies.base.round import Plan, Round, Sealed, Steps
from florets.strategies.core import FloatArray
from florets.strategies.settings import LossData, RunKeys, Settings
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.flower import filled
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=State)


class Hooks(FlowerStrategy, Generic[S, M]):
    """What Flower calls on a strategy; `Strategy` defines its rounds.

    `layers` and `privacy`, the run's budget, are set up by `protect`; `last` is the current round, or the last one.
    """

    settings: S
    state: M
    run: RunKeys
    averaging: Averaging
    federation: Federation
    evaluation: EvaluationSettings
    personal: Method[Any, Any] | None
    seed: int
    round_timeout: float
    loss_data: LossData | None
    loss_batch: int | None
    shared_layers: tuple[str, ...]
    client_handlers: ClassVar[tuple[Any, ...]]
    layers: tuple[Layer, ...] = ()
    privacy: Any = None
    last_round: int | None = None
    last: Round | None = None
    _steps: Steps
    _plan: Plan[Update] | None = None
    _tests: Plan[TestResult] | None = None
    _meter: Meter | None = None

    @property
    def assignment(self) -> dict[str, int]:
        """Model index of every client that has one, by client key."""
        return self.state.assignment

    @property
    def mixtures(self) -> Mapping[str, FloatArray]:
        """Shares (K,) of the models for each client that mixes them, by key; empty where each has one."""
        return {}

    @property
    def phase(self) -> str:
        """Phase of the current round, for the report."""
        return self.state.phase

    @property
    def rounds_before(self) -> int:
        """Rounds that the algorithm needs before those that `num_rounds` counts."""
        return self.settings.rounds_before

    @abstractmethod
    def test(self, r: Round) -> Plan[TestResult]:
        """Decide what each of `r.testers` tests."""

    @abstractmethod
    def details(self) -> dict[str, Detail]:
        """Return what the algorithm itself reports of the round that just ended."""

    def protect(self, num_rounds: int, earlier: Any = None) -> Any:
        """Set up the layers for a run of this many rounds; return its budget, a continued `earlier` one."""
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
            meter=self._meter,
            evaluation=self.evaluation,
            client_handlers=self.client_handlers,
            personal=self.personal,
            privacy=self.privacy,
            strategy=self,
            layers=self.layers,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, run the algorithm up to its training exchange, and return the messages."""
        from florets.strategies.shared.first_round import begun

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
        trains = self.personal is not None and self.personal.trains
        if self.personal is not None and trains and server_round > self.rounds_before + 1 and plan.requests:
            self.personal.refuse_unused(type(self).__name__, server_round)
        for layer in self.layers:
            plan = layer.trains(plan, r)
        self._plan = plan
        return [request.message for request in plan.requests]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the algorithm the valid updates, and return its next models; a model that nobody trained stays."""
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
            given: Any = Sealed(shared, why) if why else shared
            bank = self._end(lambda: self._steps.send(given))
            bank = r.models.bank if bank is None else bank
            for layer in self.layers:
                bank = layer.combined(bank, r)
            models = r.models.replaced(bank)
            self.last = replace(r, models=models)
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
        """Return the valid updates of the training exchange; None where no sum of masked ones could be read."""
        r = self.context
        if not plan.requests:
            raise RoundFailed(f"round {r.server_round}: none of its participants had anything to train")
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

    def restore(self, state: Any, arrays: ArrayRecord) -> None:
        """Let the run end with an earlier round's state and models."""
        models = Models(arrays, self.shared_layers, self.context.models.untrained)
        self.state, self.last = state, replace(self.context, models=models)

    def summary(self) -> None:
        """Log what will run; a hook of Flower's."""
        shared = f", shared layers {', '.join(self.shared_layers)}" if self.shared_layers else ""
        name, rate = type(self).__name__, self.settings.fraction_train
        log.info("%s: participation %g, %s%s", name, rate, self.averaging, shared)

    def initialize_parameters(self, client_manager: object) -> None:
        """Refuse workflows of Flower's old interface, which call this first."""
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
        self.last_round = self.rounds_before + num_rounds
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
