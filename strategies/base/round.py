"""`Round`: what an algorithm can do in a round; `Plan`: its training exchange or its test."""

import math
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from florets.strategies.base.exchange import (
    Handler,
    Meter,
    Read,
    Replies,
    Request,
    T,
    handler_path,
    log,
    send,
    sort_replies,
)
from florets.strategies.base.federation import RoundFailed, TrainingDiverged
from florets.strategies.base.groups import (
    Cluster,
    Frozen,
    Grouping,
    Groups,
    LossVectors,
    Rows,
    grouped,
    opened,
    sealed,
)
from florets.strategies.base.models import Averaging, Models, Updates
from florets.strategies.base.report import MOST_NUMBERS, Client, Compared, Vectors, named, sketched
from florets.strategies.core import FloatArray, IntArray
from florets.task.randomness import Purpose, generator
from florets.task.tested import Evaluation
from florets.task.wire import codec, kinds
from florets.task.wire.flower import filled
from florets.task.wire.replies import (
    Answer,
    Losses,
    SelectedUpdate,
    Update,
    check_examples,
    read_answer,
)

R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Plan(Generic[R]):
    """One exchange of a round: its training or its test.

    `keep` keeps clients' own part of the valid updates, `reveal` makes updates of masked replies. `groups` has the
    model that each client is asked to train, where the server decides.
    """

    requests: list[Request]
    read: Read[R]
    keep: Callable[[Sequence[tuple[str, Update]]], None] | None = None
    reveal: Callable[[Replies[Any]], Replies[Update]] | None = None
    groups: Mapping[str, int] = field(default_factory=dict)


Tests = Plan[Evaluation]
"""An evaluation: the models that testers test."""
Steps = Generator[Plan[Update], Sequence[tuple[str, Update]], FloatArray]
"""A round of an algorithm: it yields the training exchange, gets the valid updates, and returns the next bank."""


@dataclass(eq=False, kw_only=True)
class Round:
    """One round of an algorithm: what it can ask of clients and have them train.

    An algorithm may set `models` and `participants`, to begin with another bank or other clients than were sampled.

    Attributes
    ----------
    online, participants, testers
        All clients that are here, those sampled of them, and those that test at an evaluation; sorted by key.
    models
        Those that the round starts from; after aggregation, those that it ends with.
    timeout
        Seconds until an exchange ends, complete or not.
    answered
        Clients whose valid updates have arrived.
    """

    server_round: int
    seed: int
    strategy: Any
    config: ConfigRecord
    grid: Grid
    online: Sequence[Client]
    participants: Sequence[Client]
    models: Models
    averaging: Averaging
    timeout: float
    meter: Meter
    layers: Sequence[Any]
    testers: Sequence[Client] = ()
    answered: Sequence[str] = ()
    keepers: Mapping[str, str] = field(default_factory=dict)
    """Clients that have kept models for their training, and the models' `token`."""

    def name_of(self, node_id: int) -> str:
        """Return the key of the client at a node."""
        # A search and no table: only the few that an exchange still waits for are looked up.
        return next((client.key for client in self.online if client.node_id == node_id), f"node {node_id}")

    def random(self, purpose: Purpose | str) -> np.random.Generator:
        """Return the generator of one of the server's draws in this round; an author's own draw has a name."""
        return generator(self.seed, self.server_round, purpose)

    def newcomers(self, known: Container[str]) -> list[Client]:
        """Return the participants that are not in `known`."""
        return [client for client in self.participants if client.key not in known]

    def ask(self, requests: Sequence[Request], read: Read[T]) -> Replies[T]:
        """Send the requests of one exchange and wait for their replies; see `triage`."""
        replies = send(self.grid, [request.message for request in requests], self.timeout, self.name_of)
        return self.triage(requests, replies, read)

    def request(
        self,
        kind: str,
        client: Client,
        arrays: ArrayRecord | None,
        settings: Mapping[str, object],
        others: Mapping[str, ArrayRecord] | None = None,
    ) -> Request:
        """Build one message, whose arrays are shared; `others` are further array records by name."""
        for layer in self.layers:
            layer.allow(kind, settings.get(kinds.HANDLER))
        # A copy of the checked record is ten times as fast as a new one, which checks every value again.
        own = {**settings, kinds.SERVER_ROUND: self.server_round, kinds.CLIENT_NUMBER: client.number}
        sent: dict[str, ArrayRecord] = {**(others or {})}
        if arrays is not None:
            sent[kinds.ARRAYS] = arrays
        content = filled(RecordDict(), {kinds.CONFIG: filled(self.config.copy(), own), **sent})
        message = Message(content, client.node_id, kind, ttl=self.timeout, group_id=str(self.server_round))
        return Request(client.key, message)

    def query(
        self,
        handler: Handler,
        clients: Iterable[Client],
        *,
        returns: Mapping[str, Sequence[int]] | None = None,
        numbers: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        model: int | None = None,
        needed: bool = True,
    ) -> dict[str, Answer]:
        """Ask clients something by a handler of the strategy's own (one exchange); return the valid answers by key.

        `returns` are the shapes of the arrays that the handler returns, by name, `numbers` names of its numbers;
        `model` is the one that is sent. Where answers are `needed`, a round with fewer than the quorum is repeated.
        """
        sent = None if model is None else self.models.one(model)
        requests = [self.request_custom(handler, one, sent, settings, category="query") for one in clients]
        replies = self.ask(requests, lambda _, content: read_answer(content, returns or {}, numbers))
        if needed:
            self.require(replies, "answer")
        return dict(replies.ok)

    def request_custom(
        self,
        handler: Handler,
        client: Client,
        arrays: ArrayRecord | None = None,
        settings: Mapping[str, object] | None = None,
        others: Mapping[str, ArrayRecord] | None = None,
        category: Literal["train", "evaluate", "query"] = "train",
    ) -> Request:
        """Build a message to a client handler; ValueError if it is the author's and not declared. See `request`."""
        path = handler_path(handler)
        if path not in self.strategy.client_handlers and not kinds.is_built_in(path):
            raise ValueError(
                f"handler {path!r} is not in the strategy's client_handlers={self.strategy.client_handlers}"
            )
        own = {**(settings or {}), kinds.HANDLER: path}
        return self.request(f"{category}.{kinds.CUSTOM}", client, arrays, own, others)

    def triage(self, requests: Sequence[Request], replies: list[Message], read: Read[T]) -> Replies[T]:
        """Sort and check the replies of one of the algorithm's exchanges, and count them and their bytes."""
        # Mostly participants are asked; all that are online may be a hundred times as many.
        introduced = {client.key: client.num_examples for client in self.participants}
        if any(request.key not in introduced for request in requests):
            introduced = {client.key: client.num_examples for client in self.online} | introduced

        def checked(key: str, content: RecordDict) -> T:
            reading = read(key, content)
            check_examples(getattr(reading, "num_examples", None), introduced.get(key))
            return reading

        triaged = sort_replies(requests, replies, checked)
        triaged.warn()
        self.meter.count_exchange(requests, replies, triaged)
        return triaged

    def note_vectors(self, kind: str, keys: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors by which this round compares clients, for the results only; of long ones a projection.

        `kind` says what they are: "losses", "updates", ... A second call in a round replaces the first one's.
        """
        if len(keys) != len(vectors):
            raise ValueError(
                f"note_vectors: {len(keys)} keys and {len(vectors)} vectors; give one vector for each key"
            )
        if not keys:
            return
        rng = generator(self.seed, 0, Purpose.EMBEDDING)
        self.meter.compared = Compared(kind, tuple(keys), sketched(vectors, MOST_NUMBERS, rng))

    def require(self, replies: Replies[T], what: str) -> None:
        """Raise RoundFailed if an exchange is below the quorum; TrainingDiverged where values are not finite."""
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        needed = max(1, math.ceil(self.strategy.run.quorum * replies.asked - 1e-9))
        if len(replies.ok) < needed:
            found = f"{len(replies.ok) or 'none'} of {replies.asked} asked, and needs {needed}"
            text = f"round {self.server_round} returned a valid {what} from {found}: {replies.failures()}"
            raise TrainingDiverged(text) if replies.has_diverged else RoundFailed(text)

    def reject(self, replies: Replies[T], keys: Container[str], reason: str) -> Replies[T]:
        """Return the replies without those of `keys`, which count as invalid from now on."""
        if not (found := [key for key, _ in replies.ok if key in keys]):
            return replies
        log.warning("client %s sent an invalid reply: %s", ", ".join(found), reason)
        self.meter.reject(found, reason)
        left = tuple((key, content) for key, content in replies.ok if key not in keys)
        return replace(replies, ok=left, invalid={**replies.invalid, **dict.fromkeys(found, reason)})

    def updates_of(self, plan: Plan[Update], replies: list[Message]) -> Sequence[tuple[str, Update]] | None:
        """Return the valid updates of the training exchange; None where no sum of masked ones could be read."""
        if not plan.requests:
            raise RoundFailed(f"round {self.server_round}: none of its participants had anything to train")
        updates = self.triage(plan.requests, replies, plan.read)
        if plan.reveal is not None:
            self.require(updates, "masked update")
            updates = plan.reveal(updates)
            if not updates.ok:
                # A round that members have revealed shares in is not tried again.
                log.warning("round %d: no sum could be unmasked; all models stay as they are", self.server_round)
                return None
        for layer in self.layers:
            updates = layer.updates(updates, self)
        if plan.reveal is None:
            self.require(updates, "update")
        self.meter.count_training(updates.ok)
        slowed = [key for key, update in updates.ok if update.halvings]
        if slowed and len(slowed) == len(updates.ok):
            raise TrainingDiverged(
                f"round {self.server_round}: training diverged at all of its {len(slowed)} clients"
            )
        if slowed:
            log.warning(
                "round %d: training diverged at %s, and went on with half of the learning rate, or less (halvings in "
                "clients_over_rounds.csv); lower train.learning_rate",
                self.server_round,
                named(slowed),
            )
        return updates.ok

    def train(self, groups: Mapping[str, int], settings: Mapping[str, str | float] | None = None) -> Plan[Update]:
        """Plan the exchange in which each participant in `groups` trains its model; the others sit this round out."""
        if groups and not any(client.key in groups for client in self.participants):
            there = named([repr(client.key) for client in self.participants])
            raise RoundFailed(f"round {self.server_round}: none of its participants ({there}) is assigned a model")
        # Settings of this exchange, such as FedProx's term, hold for a method's messages, too.
        r = replace(self, config=filled(self.config.copy(), settings)) if settings else self
        plan: Plan[Update] = self.strategy.personal.train(r, groups)
        return plan

    def train_best(self, by: Literal["loss", "accuracy"] = "loss") -> Plan[Update]:
        """Plan the exchange in which each participant picks the model that is best on its data, and trains it."""
        r = replace(self, config=filled(self.config.copy(), {kinds.BY_ERRORS: True})) if by == "accuracy" else self
        chosen = next((found for layer in self.layers if (found := layer.choices(r)) is not None), None)
        if chosen is None and self.strategy.personal.trains:
            found = r.losses()
            chosen = dict(zip(found.keys, np.argmin(found.rows, axis=1).tolist(), strict=True))
        return r.train_selected() if chosen is None else r.train(chosen)

    def train_selected(self, settings: Mapping[str, float] | None = None) -> Plan[Update]:
        """Plan one exchange in which each participant picks its lowest-loss model and trains it."""
        layout, count = self.models.layout, self.models.count
        config = {**self.averaging.settings, **(settings or {})}
        requests = [
            self.request(kinds.TRAIN_SELECT, client, self.models.record, config) for client in self.participants
        ]
        return Plan(requests, lambda _, content: codec.read(SelectedUpdate, content, layout=layout, K=count))

    def losses(self) -> LossVectors:
        """Ask participants for their losses of each model (one exchange), and leave out outliers; needs a quorum."""
        models = self.models
        for layer in self.layers:
            models = layer.compared(models, self)
        with self.meter.part("losses"):
            replies = self._losses_of(self.participants, models, is_kept=True)
        for layer in self.layers:
            replies = layer.losses(replies, self, True)
        self.require(replies, "loss vector")
        self.keepers = {key: models.token for key, reply in replies.ok if reply.kept}
        keys, rows = [key for key, _ in replies.ok], np.stack([reply.losses for _, reply in replies.ok])
        self.note_vectors("losses", keys, rows)
        return LossVectors(keys, sealed(rows, self.seal_of("losses")), models)

    def group(self, keys: Sequence[str], rows: Rows, k: int, cluster: Cluster, source: str = "grouping") -> Groups:
        """Group clients into `k` groups by their rows (M, D), with `cluster`; `source` names it in errors."""
        from florets.strategies.core.cluster import check_clusters

        def checked(values: FloatArray) -> IntArray:
            check_clusters(found := cluster(values), len(values), source)
            return found

        group: Grouping = grouped
        for layer in self.layers:
            group = layer.grouping(group, self)
        with self.meter.part("cluster"):
            return group(keys, rows, k, checked)

    def placed(self, frozen: Frozen, known: Container[str]) -> dict[str, int]:
        """Return the models of participants that are not `known`: each joins the nearest of frozen groups."""
        new = self.newcomers(known)
        if not new:
            return {}
        assert frozen.models is not None
        with self.meter.part("losses"):
            replies = self._losses_of(new, frozen.models, all_samples=True)
        # Only where a client itself belongs depends on its losses.
        for layer in self.layers:
            replies = layer.losses(replies, self, False)
        return {key: frozen.nearest_model(reply.losses) for key, reply in replies.ok}

    def members(self, groups: Mapping[str, int], known: Container[str] | None = None) -> dict[str, int]:
        """Return the participants' part of some groups; `known` restricts them, None does not."""
        here = [client.key for client in self.participants if client.key in groups]
        return {key: groups[key] for key in here if known is None or key in known}

    def average(self, updates: Sequence[tuple[str, Update]], *, drawn: bool = False) -> FloatArray:
        """Return the next bank (K, R): averages of each model's updates, of groups that may be `drawn` at random."""
        rows = Updates(opened(updates))
        for layer in self.layers:
            rows = layer.counted(rows, self)
        bank: FloatArray = self.averaging.next_bank(self.models, rows, rows.models, rows.examples)
        bank = self.strategy.personal.averaged(self.models, rows.updates, bank)
        for layer in self.layers if drawn else ():
            bank = layer.bounded(bank, self)
        return bank

    def vectors(self, vectors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return clients' own vectors (D,), by key, as an algorithm may keep them over rounds."""
        for layer in self.layers:
            vectors = layer.vectors(vectors, self)
        return vectors

    def test(
        self,
        models: Mapping[str, ArrayRecord],
        settings: Mapping[str, float] | None = None,
        others: Mapping[str, Mapping[str, ArrayRecord]] | None = None,
        handler: Handler | None = None,
    ) -> Tests:
        """Plan the evaluation in which each tester tests the model under its key, or what a `handler` makes of it."""
        config, records = {**self.strategy.test_settings, **(settings or {})}, others or {}

        def request(client: Client) -> Request:
            model, own = models[client.key], records.get(client.key)
            if handler is None:
                return self.request(kinds.EVALUATE, client, model, config, own)
            return self.request_custom(handler, client, model, config, own, category="evaluate")

        requests = [request(client) for client in self.testers if client.key in models]
        return Plan(requests, self.strategy.read_test)

    def ask_losses(self, clients: Sequence[Client], models: Models, *, all_samples: bool = False) -> Replies[Losses]:
        """Ask clients for the mean loss of each of K models (one exchange); ValueError where they are protected.

        With `loss_batch` it is taken on a batch, unless `all_samples` (for decisions that last).
        """
        if why := self.seal_of("losses"):
            raise ValueError(why)
        return self._losses_of(clients, models, all_samples)

    def seal_of(self, what: Literal["updates", "losses"]) -> str:
        """Return why the algorithm may not look at single clients' updates or losses; "": it may."""
        return next((why for layer in self.layers if (why := layer.seals(what))), "")

    def _losses_of(
        self, clients: Sequence[Client], models: Models, all_samples: bool = False, is_kept: bool = False
    ) -> Replies[Losses]:
        settings: dict[str, object] = {kinds.BANK: models.token} if is_kept or models is self.models else {}
        if all_samples and kinds.LOSS_BATCH in self.config:
            settings[kinds.LOSS_BATCH] = 0
        requests = [self.request(kinds.LOSSES, client, models.record, settings) for client in clients]
        raised = 0.0
        if self.strategy.privacy is not None:
            self.strategy.privacy.charge_grouping([client.key for client in clients])
            raised = self.strategy.privacy.raised_by(models.count)

        def read(_: str, content: RecordDict) -> Losses:
            reply = codec.read(Losses, content, K=models.count)
            return replace(reply, losses=reply.losses - raised) if raised else reply

        return self.ask(requests, read)

    def ask_lowest(self, clients: Sequence[Client], among: Sequence[int] | None = None) -> dict[str, int]:
        """Ask clients, if any, for losses of the round's models; return the lowest of each, of those `among`."""
        if not clients:
            return {}
        offered = list(range(self.models.count) if among is None else among)
        with self.meter.part("losses"):
            replies = self._losses_of(clients, self.models)
        return {key: offered[int(np.argmin(reply.losses[offered]))] for key, reply in replies.ok}
