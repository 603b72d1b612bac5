"""`Strategy`: the Flower Strategy that runs an `Algorithm`, round by round."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from florets.strategies.base.algorithm import Algorithm, M, S
from florets.strategies.base.averaging import Averaging, Updates, averaging_of
from florets.strategies.base.choices import choice_of, loss_batch_of, start_with, with_loss_samples
from florets.strategies.base.context import Plan, Round
from florets.strategies.base.evaluation import EvaluationSettings, confusions_of, evaluation_of, mean_results
from florets.strategies.base.exchange import log, send, sort_replies
from florets.strategies.base.federation import Federation, FederationError, RoundFailed
from florets.strategies.base.freed_memory import give_back_freed
from florets.strategies.base.loop import NOTHING, Earlier, EvaluateModels, RoundObserver, run_rounds
from florets.strategies.base.meter import Meter
from florets.strategies.base.method import Method
from florets.strategies.base.models import Models, untrained_of
from florets.strategies.base.personal import PersonalMethod, method_of, within_groups
from florets.strategies.base.report import Evaluation, RoundReport
from florets.strategies.base.snapshot import snapshot
from florets.strategies.base.wrapper import refuse_wrapper
from florets.strategies.core import FloatArray
from florets.strategies.settings import Averages, ChooseK, FirstRound, LossData, RunKeys
from florets.task.keys import as_declared, range_problems
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.replies import Update
from florets.task.wire.scores import TestResult


class Strategy(Algorithm[S, M], FlowerStrategy):
    """One model per cluster of clients; subclasses decide in `plan` who trains which.

    Parameters
    ----------
    settings
        The algorithm's own; None: its defaults.
    k
        Number of clusters, "auto" where the algorithm finds it; None: as many as the initial arrays hold models.
    averaging
        What clients return and how it is averaged, whole or by name; None: the algorithm's default.
    first_round, choose_k, loss_data
        Run-level choices, for the algorithms that follow them; None: the algorithm's default.
    loss_batch
        Samples, drawn anew in each round, on which clients take the losses of models; None: all.
    input_shape, num_outputs, loss
        Sizes and loss of the task, for the algorithms that need them.
    num_clients, min_clients
        Clients that the run has, None takes whoever is online; and clients needed to start, None: `num_clients`.
    seed
        Seed of every draw that the server makes.
    shared_layers
        Name prefixes of layers that are averaged over all participants and equal in all models; those of `settings`.
    eval_every
        Rounds between two test evaluations; the last round is always evaluated.
    eval_clients
        "all": all online clients that have a model test it; "participants": of these the round's participants.
    fine_tune_epochs, validation, statistics
        What clients do besides at an evaluation, see `EvaluationSettings`.
    personal
        What clients have of their own within the groups that the algorithm finds; None: their group's model.
    quorum
        Fraction of the clients asked whose valid replies a round needs, or it is repeated.
    start_timeout, round_timeout
        Seconds to wait for clients at the start, and for the replies of one exchange.
    grace
        Seconds to wait for the rest once the quorum of an exchange has replied; None waits for `round_timeout`.
    round_tries, fingerprint
        How often a round is tried before the run ends; hash of the code that clients must run, None accepts any.
    own
        Single settings of the algorithm, in place of those in `settings`: ``CLoVE(k=4, memory=True)``.

    Raises
    ------
    ValueError
        If a setting is of another type or out of its range, or the algorithm cannot follow a run-level choice.
    """

    def __init__(
        self,
        settings: S | None = None,
        *,
        k: int | Literal["auto"] | None = None,
        averaging: Averaging | Averages | None = None,
        first_round: FirstRound | None = None,
        choose_k: ChooseK | None = None,
        loss_data: LossData | None = None,
        loss_batch: int | None = None,
        input_shape: Sequence[int] = (),
        num_outputs: int = 0,
        loss: str = "",
        num_clients: int | None = None,
        min_clients: int | None = None,
        seed: int = 0,
        eval_every: int = RunKeys.eval_every,
        eval_clients: Literal["all", "participants"] = RunKeys.eval_clients,
        fine_tune_epochs: float = RunKeys.fine_tune_epochs,
        validation: bool = False,
        statistics: bool = False,
        personal: PersonalMethod[Any, Any] | None = None,
        quorum: float = RunKeys.quorum,
        start_timeout: float = RunKeys.start_timeout,
        round_timeout: float = RunKeys.round_timeout,
        grace: float | None = RunKeys.grace,
        round_tries: int = RunKeys.round_tries,
        fingerprint: str | None = None,
        **own: Any,
    ) -> None:
        chosen: S = replace(self.Settings() if settings is None else settings, **own)
        run = RunKeys(
            loss_batch=loss_batch,
            eval_every=eval_every,
            eval_clients=eval_clients,
            fine_tune_epochs=fine_tune_epochs,
            min_clients=min_clients,
            quorum=quorum,
            start_timeout=start_timeout,
            round_timeout=round_timeout,
            grace=grace,
            round_tries=round_tries,
        )
        self.settings, problems = as_declared(chosen)
        problems += as_declared(run)[1]
        if problems := problems or [*range_problems(chosen), *range_problems(run), *chosen.conflicts()]:
            raise ValueError(" ".join(problems))
        self.k = k
        self.averaging = averaging if isinstance(averaging, Averaging) else averaging_of(self.settings, averaging)
        self.choose_k = choice_of(self.settings, "choose_k", choose_k)
        self.loss_data = choice_of(self.settings, "loss_data", loss_data)
        self.loss_batch = loss_batch_of(self.settings, loss_batch)
        self.first_round = choice_of(self.settings, "first_round", start_with(k, self.choose_k, first_round))
        self.input_shape, self.num_outputs, self.loss = tuple(input_shape), num_outputs, loss
        self.shared_layers = tuple(getattr(self.settings, "shared_layers", ()))
        self.seed, self.eval_every, self.eval_clients = seed, eval_every, eval_clients
        sums_of = (num_outputs if loss == "cross_entropy" else 0) if statistics else None
        self.evaluation = EvaluationSettings(fine_tune_epochs, validation, sums_of)
        self.quorum = quorum
        self.round_timeout = round_timeout
        self.grace = grace
        self.round_tries = round_tries
        if self.method is not None and personal is not None:
            raise ValueError(f"personal={personal.name}: {type(self).__name__} has a method of its own; leave it out")
        self.personal = None if personal is None else within_groups(self, personal)
        if self.method is not None:
            self.personal = method_of(self, self.method(self.settings))
        self.federation = Federation(num_clients, start_timeout, fingerprint, min_clients, self.client_handlers)
        self.last_round: int | None = None
        self.state: M = self.State()
        self._context: Round | None = None
        self._plan: Plan[Update] | None = None
        self._tests: Plan[TestResult] | None = None
        self._meter: Meter | None = None

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
        self.open_round(server_round, arrays, config, grid)
        self.state.evaluations, self.state.confusions = {}, {}
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
        return [request.message for request in plan.requests]

    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Look who is there, sample this round's participants, and make its context."""
        # Another try of the same round adds to the round's figures.
        self._meter = self._meter or Meter()
        self._meter.tries += 1
        self.federation.refresh(grid, config)
        self.federation.begin_round(server_round)
        unchanged = self._context is not None and arrays is self._context.models.record
        self._context = Round(
            server_round=server_round,
            seed=self.seed,
            config=with_loss_samples(config, self.loss_data, self.loss_batch),
            grid=grid,
            online=self.federation.online(),
            participants=self.federation.sample(
                self.settings.fraction_train, generator(self.seed, server_round, Purpose.PARTICIPATION)
            ),
            models=self.context.models if unchanged else Models(arrays, self.shared_layers, untrained_of(config)),
            averaging=self.averaging.in_round(config, server_round),
            timeout=self.round_timeout,
            quorum=self.quorum,
            grace=self.grace,
            meter=self._meter,
            evaluation=self.evaluation,
            client_handlers=self.client_handlers,
            personal=self.personal,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the updates into the next K models; a model that nobody trained keeps its parameters."""
        if self._plan is None:
            raise RuntimeError("aggregate_train was called before configure_train")
        context = self.context
        if not self._plan.requests:
            raise RoundFailed(f"round {server_round}: none of its participants could be given anything to train")
        give_back_freed(context.models.layout.size * np.dtype(np.float32).itemsize * len(self._plan.requests))
        updates = context.reject_outliers(context.triage(self._plan.requests, list(replies), self._plan.read))
        context.require(updates, "update")
        context.meter.count_training(updates.ok)
        shared = updates.ok if self._plan.keep is None else self._plan.keep(updates.ok)
        self.after_training(shared)
        with context.meter.part("aggregate"):
            self.assignment.update({key: update.model for key, update in shared})
            combine = self._plan.combine or self.average
            self._context = replace(context, models=context.models.replaced(combine(shared)))
        weights = [update.num_examples for _, update in updates.ok]
        loss = self.state.train_loss = float(np.average([u.train_loss for _, u in updates.ok], weights=weights))
        return self.context.models.record, MetricRecord({kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: sum(weights)})

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Return the next bank (K, R): each model's updates averaged as `averaging` says.

        A subclass may leave updates out or weight them otherwise; it must return all K models, and change neither the
        updates nor the models (`context.models`).
        """
        bank = self.context.averaging.next_bank(
            self.context.models,
            Updates(updates),
            np.array([update.model for _, update in updates]),
            np.array([update.num_examples for _, update in updates], dtype=np.float64),
        )
        return bank if self.personal is None else self.personal.averaged(self.context.models, updates, bank)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the clients that have a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.eval_every == 0 or server_round == self.last_round
        asked = self.context.participants if self.eval_clients == "participants" else self.federation.online()
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
            raise RuntimeError(f"this {type(self).__name__} has run already and holds its state; build a new one")
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.summary()
        rounds = self.first_rounds + num_rounds
        configs = (train_config or ConfigRecord(), evaluate_config or train_config or ConfigRecord())
        return run_rounds(self, grid, initial_arrays, rounds, configs, evaluate_fn, on_round, earlier)

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
            details=self.details(),
            tries=meter.tries,
            rejected=dict(meter.rejected),
            clients=meter.clients,
            compared=meter.compared,
        )
