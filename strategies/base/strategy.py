"""`ClusteredStrategy`: the round and everything else that the algorithms share.

An algorithm answers one question in `plan`: who trains what in this round.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from florets.strategies.base.averaging import Averaging, ModelAveraging
from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.evaluation import mean_results
from florets.strategies.base.exchange import Request, log, sort_replies
from florets.strategies.base.federation import Federation, RoundFailed
from florets.strategies.base.loop import NOTHING, Earlier, EvaluateModels, RoundObserver, run_rounds
from florets.strategies.base.memory import Memory
from florets.strategies.base.meter import Meter
from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail, Evaluation, Forecast, RoundReport
from florets.strategies.core import FloatArray
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.replies import Update, read_evaluation


class ClusteredStrategy(Memory, Strategy):
    """One model per cluster of clients; subclasses decide in `plan` who trains which.

    Parameters
    ----------
    num_clients
        Clients that the run has; None takes whoever is online.
    min_clients
        Clients needed to start; None: `num_clients`.
    seed
        Seed of every draw that the server makes.
    fraction_train
        Participation rate rho: share of the online clients that take part in a round.
    shared_layers
        Name prefixes of layers that are averaged over all participants and equal in all models.
    averaging
        What clients return and how it is averaged.
    eval_every
        Rounds between two test evaluations; the last round is always evaluated.
    eval_clients
        "all": all online clients that have a model test it; "participants": of these the round's participants.
    quorum
        Share of the clients asked whose usable replies a round needs; below it the round is repeated.
    start_timeout, round_timeout
        Seconds to wait for clients at the start, and for the replies of one exchange.
    grace
        Seconds to wait for the rest once the quorum of an exchange has replied; None waits for `round_timeout`.
    round_tries
        How often a round is tried before the run ends.
    fingerprint
        Hash of the code that clients must run; None accepts any.
    """

    transient: ClassVar[tuple[str, ...]] = (
        *("seed", "fraction_train", "shared_layers", "averaging", "eval_every", "eval_clients", "federation"),
        *("quorum", "round_timeout", "grace", "round_tries", "last_round"),
        *("_context", "_plan", "_asked", "_meter"),
    )

    def __init__(
        self,
        *,
        num_clients: int | None = None,
        min_clients: int | None = None,
        seed: int = 0,
        fraction_train: float = 1.0,
        shared_layers: Sequence[str] = (),
        averaging: Averaging | None = None,
        eval_every: int = 1,
        eval_clients: Literal["all", "participants"] = "all",
        quorum: float = 0.0,
        start_timeout: float = 120.0,
        round_timeout: float = 3600.0,
        grace: float | None = None,
        round_tries: int = 1,
        fingerprint: str | None = None,
    ) -> None:
        self.seed = seed
        self.fraction_train = fraction_train
        self.shared_layers = tuple(shared_layers)
        self.averaging = averaging or ModelAveraging()
        self.eval_every = eval_every
        self.eval_clients = eval_clients
        self.quorum = quorum
        self.round_timeout = round_timeout
        self.grace = grace
        self.round_tries = round_tries
        self.federation = Federation(num_clients, start_timeout, fingerprint, min_clients)
        self.last_round: int | None = None
        self.assignment: dict[str, int] = {}
        self.evaluations: dict[str, Evaluation] = {}
        self.train_loss: float | None = None
        self._context: RoundContext | None = None
        self._plan: Plan | None = None
        self._asked: list[Request] = []
        self._meter: Meter | None = None

    @abstractmethod
    def plan(self, context: RoundContext) -> Plan:
        """Decide what this round's participants train; may ask them first (`context.ask_losses`)."""

    def check(self, models: Models) -> None:
        """Raise ValueError where the algorithm does not fit the first models; called before any client is asked."""

    @property
    def phase(self) -> str:
        """Phase of the current round, for the report."""
        return "training"

    @property
    def first_rounds(self) -> int:
        """Rounds that the algorithm needs before those that `num_rounds` counts."""
        return 0

    def forecast(self, models: Models) -> Forecast | None:
        """Return what those rounds will cost with the clients that are online; None where there are none."""
        return None

    def details(self) -> dict[str, Detail]:
        """Return what this algorithm alone has to tell of the round that just ended."""
        return {}

    @property
    def context(self) -> RoundContext:
        """The current round, or the last one.

        Raises
        ------
        RuntimeError
            Before the first round.
        """
        if self._context is None:
            raise RuntimeError("there is no round before the first call of configure_train")
        return self._context

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, let the algorithm plan, and return the messages of the training exchange."""
        self.open_round(server_round, arrays, config, grid)
        self.evaluations = {}
        self._plan = self.plan(self.context)
        return [request.message for request in self._plan.requests]

    def open_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Look who is there, sample this round's participants, and make its context."""
        # Another try of the same round adds to the round's figures.
        self._meter = self._meter or Meter()
        self._meter.tries += 1
        self.federation.refresh(grid, config)
        unchanged = self._context is not None and arrays is self._context.models.record
        self._context = RoundContext(
            server_round=server_round,
            seed=self.seed,
            config=config,
            grid=grid,
            participants=self.federation.sample(
                self.fraction_train, generator(self.seed, server_round, Purpose.PARTICIPATION)
            ),
            models=self.context.models if unchanged else Models(arrays, self.shared_layers),
            averaging=self.averaging,
            timeout=self.round_timeout,
            quorum=self.quorum,
            grace=self.grace,
            meter=self._meter,
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
        updates = context.refuse_absurd(context.triage(self._plan.requests, list(replies), self._plan.read))
        context.require(updates, "update")
        with context.meter.part("aggregate"):
            self.assignment.update({key: update.model for key, update in updates.ok})
            combine = self._plan.combine or self.average
            context.models = context.models.replaced(combine(updates.ok))
        weights = [update.num_examples for _, update in updates.ok]
        self.train_loss = float(np.average([update.train_loss for _, update in updates.ok], weights=weights))
        metrics = MetricRecord({kinds.TRAIN_LOSS: self.train_loss, kinds.NUM_EXAMPLES: sum(weights)})
        return context.models.record, metrics

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Return the next bank (K, R): each model's updates averaged as `averaging` says."""
        return self.averaging.next_bank(
            self.context.models,
            np.stack([update.vector for _, update in updates]),
            np.array([update.model for _, update in updates]),
            np.array([update.num_examples for _, update in updates], dtype=np.float64),
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the clients that have a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.eval_every == 0 or server_round == self.last_round
        asked = self.context.participants if self.eval_clients == "participants" else self.federation.online()
        self._asked = [
            self.context.request(kinds.EVALUATE, client, self.context.models.one(self.assignment[client.key]), config)
            for client in (asked if due else [])
            if client.key in self.assignment
        ]
        return [request.message for request in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Keep every client's test result and return their unweighted means."""
        triaged = sort_replies(self._asked, list(replies), lambda _, content: read_evaluation(content))
        self.context.meter.count(triaged)
        self.evaluations = {key: Evaluation(test.num_examples, test.loss, test.accuracy) for key, test in triaged.ok}
        return mean_results(self.evaluations.values())

    def summary(self) -> None:
        """Log what is about to run."""
        shared = f", shared layers {', '.join(self.shared_layers)}" if self.shared_layers else ""
        log.info("%s: participation %g, %s%s", type(self).__name__, self.fraction_train, self.averaging, shared)

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
            What an interrupted run has done, when it goes on: `load_state` has taken its state, and `initial_arrays`
            are its models.

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

    def close_round(self, server_round: int) -> RoundReport:
        """Return the report of the round that just ended."""
        meter = self.context.meter
        meter.finish()
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
            train_loss=self.train_loss,
            evaluations=dict(self.evaluations),
            details=self.details(),
            tries=meter.tries,
        )
