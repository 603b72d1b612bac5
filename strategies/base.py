"""`ClusteredStrategy`: the round loop and everything else that the algorithms share.

An algorithm answers one question in `plan`: who trains what in this round.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from strategies.averaging import Averaging, ModelAveraging
from strategies.exchange import Read, Replies, Request, T, send, sort_replies
from strategies.federation import Federation, FederationError, log
from strategies.meter import Meter
from strategies.models import Models
from strategies.round import Client, Evaluation, RoundReport
from task.randomness import Purpose, generator
from task.wire import kinds
from task.wire.replies import Losses, Update, read_evaluation, read_losses, read_selected_update, read_update

RoundObserver = Callable[[RoundReport, ArrayRecord], bool | None]


@dataclass(frozen=True)
class Plan:
    """The training exchange of one round: the requests, and how to read their replies."""

    requests: list[Request]
    read: Read[Update]


class ClusteredStrategy(Strategy):
    """One model per cluster of clients; subclasses decide in `plan` who trains which.

    Parameters
    ----------
    num_clients
        Clients that the run needs; None takes whoever is online.
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
    start_timeout, round_timeout
        Seconds to wait for clients at the start, and for the replies of one exchange.
    fingerprint
        Hash of the code that clients must run; None accepts any.
    """

    def __init__(
        self,
        *,
        num_clients: int | None = None,
        seed: int = 0,
        fraction_train: float = 1.0,
        shared_layers: Sequence[str] = (),
        averaging: Averaging | None = None,
        eval_every: int = 1,
        start_timeout: float = 120.0,
        round_timeout: float = 3600.0,
        fingerprint: str | None = None,
    ) -> None:
        self.seed = seed
        self.fraction_train = fraction_train
        self.shared_layers = tuple(shared_layers)
        self.averaging = averaging or ModelAveraging()
        self.eval_every = eval_every
        self.round_timeout = round_timeout
        self.federation = Federation(num_clients, start_timeout, fingerprint)
        self.assignment: dict[str, int] = {}
        self.evaluations: dict[str, Evaluation] = {}
        self.participants: list[Client] = []
        self.meter = Meter()
        self.train_loss: float | None = None
        self._last_round: int | None = None
        self._sent: Plan | None = None
        self._asked: list[Request] = []
        self._models: Models | None = None

    # What an algorithm defines -------------------------------------------------------------------------------------

    @abstractmethod
    def plan(self, server_round: int, config: ConfigRecord, grid: Grid) -> Plan:
        """Decide what this round's `participants` train; may ask them first (`ask_losses`)."""

    @property
    def phase(self) -> str:
        """Phase of the current round, for the report."""
        return "training"

    @property
    def num_clusters(self) -> int:
        """Number of clusters in the current assignment."""
        return len(set(self.assignment.values()))

    # What an algorithm can use -------------------------------------------------------------------------------------

    @property
    def models(self) -> Models:
        """The models that the current round started from."""
        if self._models is None:
            raise RuntimeError("there are no models before the first call of configure_train")
        return self._models

    @models.setter
    def models(self, models: Models) -> None:
        self._models = models

    def random(self, server_round: int, purpose: Purpose) -> np.random.Generator:
        """Return the generator of one of the server's draws."""
        return generator(self.seed, server_round, purpose)

    def train_assigned(self, server_round: int, assignment: Mapping[str, int], config: ConfigRecord) -> Plan:
        """Plan one exchange in which each client of `assignment` trains its model; the others sit this round out."""
        clients = [client for client in self.participants if client.key in assignment]
        layout = self.models.layout
        settings = ConfigRecord({**config, **self.averaging.settings})
        requests = [
            self.request(kinds.TRAIN, server_round, client, self.models.one(assignment[client.key]), settings)
            for client in clients
        ]
        return Plan(requests, lambda key, content: read_update(content, layout, assignment[key]))

    def train_selected(self, server_round: int, config: ConfigRecord) -> Plan:
        """Plan one exchange in which each participant picks its lowest-loss model and trains it."""
        layout, count = self.models.layout, self.models.count
        settings = ConfigRecord({**config, **self.averaging.settings})
        requests = [
            self.request(kinds.TRAIN_SELECT, server_round, client, self.models.record, settings)
            for client in self.participants
        ]
        return Plan(requests, lambda _, content: read_selected_update(content, layout, count))

    def ask_losses(
        self,
        server_round: int,
        clients: Sequence[Client],
        models: Models,
        config: ConfigRecord,
        grid: Grid,
        histories: Mapping[str, Sequence[int]] | None = None,
        stability_rounds: int = 0,
    ) -> Replies[Losses]:
        """Ask clients for the mean loss of each of K models on their training data (one exchange).

        `histories` holds each client's own last assignments: from them, and nothing that it stores, the client says
        whether it is stable.
        """
        requests = []
        for client in clients:
            settings = ConfigRecord({**config, kinds.STABILITY_ROUNDS: stability_rounds})
            if history := (histories or {}).get(client.key):
                settings[kinds.HISTORY] = list(history)
            requests.append(self.request(kinds.LOSSES, server_round, client, models.record, settings))
        replies = send(grid, [request.message for request in requests], self.round_timeout)
        return self.triage(requests, replies, lambda _, content: read_losses(content, models.count))

    def request(
        self, kind: str, server_round: int, client: Client, arrays: ArrayRecord, config: ConfigRecord
    ) -> Request:
        """Build one message; every message has a RecordDict and a ConfigRecord of its own."""
        settings = ConfigRecord({**config, kinds.SERVER_ROUND: server_round})
        content = RecordDict({kinds.ARRAYS: arrays, kinds.CONFIG: settings})
        message = Message(content, client.node_id, kind, ttl=self.round_timeout, group_id=str(server_round))
        return Request(client.key, message)

    def triage(self, requests: Sequence[Request], replies: list[Message], read: Read[T]) -> Replies[T]:
        """Sort and check the replies of one of the algorithm's exchanges, and count them and their bytes."""
        triaged = sort_replies(requests, replies, read)
        self.meter.count(triaged)
        self.meter.count_bytes([request.message for request in requests], replies)
        return triaged

    # Flower's four hooks -------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample participants, let the algorithm plan, and return the messages of the training exchange."""
        self.meter = Meter()
        self.evaluations = {}
        self.federation.refresh(grid, config)
        self.participants = self.federation.sample(
            self.fraction_train, self.random(server_round, Purpose.PARTICIPATION)
        )
        if self._models is None or arrays is not self._models.record:
            self._models = Models(arrays, self.shared_layers)
        self._sent = self.plan(server_round, config, grid)
        return [request.message for request in self._sent.requests]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the updates into the next K models; a model that nobody trained keeps its parameters."""
        if self._sent is None:
            raise RuntimeError("aggregate_train was called before configure_train")
        updates = self.triage(self._sent.requests, list(replies), self._sent.read)
        if not updates.ok:
            raise FederationError(f"round {server_round} brought no usable update: {updates.failures()}")
        with self.meter.part("aggregate"):
            chosen = [update for _, update in updates.ok]
            self.assignment.update({key: update.model for key, update in updates.ok})
            weights = np.array([update.num_examples for update in chosen], dtype=np.float64)
            values = self.averaging.next_bank(
                self.models,
                np.stack([update.vector for update in chosen]),
                np.array([update.model for update in chosen]),
                weights,
            )
            self.models = self.models.replaced(values)
        self.train_loss = float(np.average([update.train_loss for update in chosen], weights=weights))
        metrics = MetricRecord({kinds.TRAIN_LOSS: self.train_loss, kinds.NUM_EXAMPLES: int(weights.sum())})
        return self.models.record, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let every online client that has a model test it, every `eval_every` rounds and in the last one."""
        due = server_round % self.eval_every == 0 or server_round == self._last_round
        clients = [client for client in self.federation.online() if client.key in self.assignment] if due else []
        self._asked = [
            self.request(kinds.EVALUATE, server_round, client, self.models.one(self.assignment[client.key]), config)
            for client in clients
        ]
        return [request.message for request in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Keep every client's test result and return their unweighted means."""
        triaged = sort_replies(self._asked, list(replies), lambda _, content: read_evaluation(content))
        self.meter.count(triaged)
        self.evaluations = {key: Evaluation(test.num_examples, test.loss, test.accuracy) for key, test in triaged.ok}
        if not self.evaluations:
            return None
        results = self.evaluations.values()
        metrics = MetricRecord({kinds.EVAL_LOSS: float(np.mean([result.loss for result in results]))})
        accuracies = [result.accuracy for result in results if result.accuracy is not None]
        if accuracies:
            metrics[kinds.EVAL_ACCURACY] = float(np.mean(accuracies))
        return metrics

    def summary(self) -> None:
        """Log what is about to run."""
        log.info(
            "%s: participation %g, averaging %s%s",
            type(self).__name__,
            self.fraction_train,
            self.averaging,
            f", shared layers {', '.join(self.shared_layers)}" if self.shared_layers else "",
        )

    # The loop ------------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        on_round: RoundObserver | None = None,
    ) -> Result:
        """Run the rounds: Flower's own loop, with deadlines, reports and a way to stop early.

        Parameters
        ----------
        initial_arrays
            K models with numbered entries (`task.wire.bank`), or one plain model.
        timeout
            Seconds to wait for the replies of one exchange; None keeps `round_timeout`.
        train_config, evaluate_config
            Settings sent with every message; `evaluate_config` None takes those of `train_config`.
        evaluate_fn
            Called with the round and all K models before the first round and after each.
        on_round
            Called with each round's report and models; returning True ends the run.

        Raises
        ------
        FederationError
            If the clients cannot run this experiment or a round brings no usable update.
        """
        self.round_timeout = self.round_timeout if timeout is None else timeout
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or train_config
        self._last_round = num_rounds
        self.summary()
        result = Result(arrays=initial_arrays)
        if evaluate_fn and (metrics := evaluate_fn(0, initial_arrays)):
            result.evaluate_metrics_serverapp[0] = metrics
        for server_round in range(1, num_rounds + 1):
            messages = self.configure_train(server_round, result.arrays, train_config, grid)
            with self.meter.part("train"):
                replies = send(grid, messages, self.round_timeout)
            arrays, train_metrics = self.aggregate_train(server_round, replies)
            result.arrays = result.arrays if arrays is None else arrays
            if train_metrics is not None:
                result.train_metrics_clientapp[server_round] = train_metrics
            with self.meter.part("evaluate"):
                messages = self.configure_evaluate(server_round, result.arrays, evaluate_config, grid)
                evaluations = self.aggregate_evaluate(server_round, send(grid, messages, self.round_timeout))
            if evaluations is not None:
                result.evaluate_metrics_clientapp[server_round] = evaluations
            if evaluate_fn and (metrics := evaluate_fn(server_round, result.arrays)):
                result.evaluate_metrics_serverapp[server_round] = metrics
            self.meter.finish()
            if on_round and on_round(self.report(server_round), result.arrays):
                break
        return result

    def report(self, server_round: int) -> RoundReport:
        """Return the report of the round that just ended."""
        return RoundReport(
            server_round=server_round,
            phase=self.phase,
            participants=tuple(client.key for client in self.participants),
            assignment=dict(self.assignment),
            num_clusters=self.num_clusters,
            stable=self.phase == "stable",
            bytes_down=self.meter.bytes_down,
            bytes_up=self.meter.bytes_up,
            seconds=dict(self.meter.seconds),
            replies=dict(self.meter.replies),
            train_loss=self.train_loss,
            evaluations=dict(self.evaluations),
        )
