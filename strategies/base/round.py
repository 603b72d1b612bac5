"""`Round`: all that an algorithm can do in a round; `Plan`: its training exchange, or its test."""

import math
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from florets.strategies.base.evaluation import EvaluationSettings
from florets.strategies.base.exchange import Meter, Patience, Read, Replies, Request, T, send, sort_replies
from florets.strategies.base.federation import RoundFailed, TrainingDiverged
from florets.strategies.base.layer import Cluster, Grouping, Groups, Layer, Rows, grouped
from florets.strategies.base.models import Averaging, Models, Updates
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import MOST_NUMBERS, Client, Compared, Vectors, sketched
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import UPDATE_FACTOR, lower_median, outlier_terms, outlier_updates
from florets.task.given import hold
from florets.task.randomness import Purpose, generator
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.flower import filled
from florets.task.wire.narrow import MODEL_RECORDS, Narrowing, widen_reply
from florets.task.wire.replies import (
    Answer,
    Losses,
    SelectedUpdate,
    Update,
    check_examples,
    read_answer,
    read_update,
)

_PATH = "_florets_path"

Handler = str | Callable[..., Any]


def handler_path(handler: Handler) -> str:
    """Return the import path ``package.module:function`` of a handler; one that is a path already stays as it is.

    One that is written in a notebook or a script has the path of the copy that other processes are handed.

    Raises
    ------
    ValueError
        If a function is not one that a client can import: it must stand at the top of its module.
    """
    if isinstance(handler, str):
        return handler
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", "")
    if not module or not name.isidentifier():
        raise ValueError(
            f"client handler {handler!r}: clients import it by its name; write a function at the top level of a "
            f"module"
        )
    if module != "__main__":
        return f"{module}:{name}"
    # A notebook's, or a script's: other processes cannot import it, and are handed a copy. The copy knows its path.
    if _PATH not in vars(handler):
        setattr(handler, _PATH, hold(handler, name))
    return str(getattr(handler, _PATH))


def handler_paths(handlers: Iterable[Handler]) -> tuple[str, ...]:
    """Return the import paths of handlers, each once."""
    return tuple(dict.fromkeys(map(handler_path, handlers)))


R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Plan(Generic[R]):
    """One exchange of a round: its training, or its test evaluation.

    Attributes
    ----------
    requests
        One for each client that takes part.
    read
        How a reply is read.
    keep
        Keeps what of the valid updates is the clients' own, and returns those of the models that they share; None:
        there is nothing of the kind.
    reveal
        How valid replies that are masked become updates, by further exchanges; None: they are updates.
    """

    requests: list[Request]
    read: Read[R]
    keep: Callable[[Sequence[tuple[str, Update]]], Sequence[tuple[str, Update]]] | None = None
    reveal: Callable[[Replies[Any]], Replies[Update]] | None = None


Steps = Generator[Plan[Update], Sequence[tuple[str, Update]], FloatArray | None]
"""A round of an algorithm: it yields the training exchange, is given the valid updates, and returns the next bank."""


class Sealed(Sequence[tuple[str, Update]]):
    """Updates of which an algorithm may take averages alone (`Round.average`): single ones are not protected."""

    def __init__(self, updates: Sequence[tuple[str, Update]], why: str) -> None:
        self._updates, self._why = updates, why

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._updates)

    def __getitem__(self, _: Any) -> Any:
        """Raise ValueError."""
        raise ValueError(self._why)

    def opened(self) -> Sequence[tuple[str, Update]]:
        """Return the updates, for who takes averages of them."""
        return self._updates


def opened(updates: Sequence[tuple[str, Update]]) -> Sequence[tuple[str, Update]]:
    """Return updates as they are, for who takes averages of them, or of parts that are protected by themselves."""
    return updates.opened() if isinstance(updates, Sealed) else updates


@dataclass(frozen=True)
class SealedRows:
    """Rows (M, D) that may be grouped (`Round.group`) and not be looked at: they are not protected by themselves."""

    opened: FloatArray
    why: str

    def __getattr__(self, _: str) -> Any:
        """Raise ValueError."""
        raise ValueError(self.why)


@dataclass(frozen=True)
class LossVectors:
    """The losses that clients sent, in the order of their keys.

    Attributes
    ----------
    replies
        As they came.
    models
        Those that they were taken on.
    limit
        What longer vectors were scaled down to.
    why
        Why they may be used for groups alone (`Round.group`); empty: for anything.
    """

    replies: Replies[Losses]
    models: Models
    limit: float = math.inf
    why: str = ""

    @property
    def keys(self) -> list[str]:
        """The clients."""
        return [key for key, _ in self.replies.ok]

    @property
    def rows(self) -> FloatArray:
        """Their losses (M, K)."""
        found = np.stack([reply.losses for _, reply in self.replies.ok])
        return SealedRows(found, self.why) if self.why else found  # type: ignore[return-value]  # for `group` alone


OUTLIER = (
    f"rejected as an outlier: its values are over {UPDATE_FACTOR:g} times the others' and the models' (a fixed bound)"
)


@dataclass(eq=False)
class Round:
    """One round: its number, participants, models and means of talking to clients.

    An algorithm may set `models` and `participants`: it starts from another bank, or with others than were sampled.

    Attributes
    ----------
    config
        Settings that travel with every message.
    online
        Clients that are there, sorted by key.
    participants
        Of these the clients sampled for this round.
    models
        The K models that the round starts from; after aggregation, those that it ends with.
    averaging
        What clients return and how it is averaged.
    timeout, quorum, grace
        How long an exchange waits and how many replies the round needs; see `exchange.Patience`.
    testers
        Clients that are to test, at an evaluation.
    evaluation
        What they do besides.
    client_handlers
        The algorithm's own client handlers.
    personal
        What clients do in place of training or testing their group's model alone, a `PersonalMethod`; or None.
    narrowing
        How models are sent in 16 or 8 bits; None: as they are.
    privacy
        The run's privacy budget, with the noise that is paid from it; None: no noise.
    strategy
        Whose round it is.
    layers
        What stands around its exchanges.
    answered
        Clients whose valid updates came, once they have.
    """

    server_round: int
    seed: int
    config: ConfigRecord
    grid: Grid
    online: Sequence[Client]
    participants: Sequence[Client]
    models: Models
    averaging: Averaging
    timeout: float
    quorum: float = 0.0
    grace: float | None = None
    meter: Meter = field(default_factory=Meter)
    testers: Sequence[Client] = ()
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    client_handlers: tuple[str, ...] = ()
    personal: Any = None
    narrowing: Narrowing | None = None
    privacy: Any = None
    strategy: Any = None
    layers: tuple[Layer, ...] = ()
    answered: Sequence[str] = ()
    _keepers: tuple[Models | None, frozenset[str]] = (None, frozenset())
    """Models that clients were asked to keep for their training, and those that have."""

    @property
    def may_depend_on_data(self) -> bool:
        """Whether what is done when may depend on clients' data: all but what noise covers."""
        return self.privacy is None

    @property
    def clients_choose(self) -> bool:
        """Whether clients choose among groups that were found once: in noised sums that costs nothing, and mends."""
        return self.privacy is not None and not self.privacy.is_local

    @property
    def patience(self) -> Patience:
        """How long an exchange waits."""
        return Patience(self.timeout, self.quorum, self.grace)

    def name_of(self, node_id: int) -> str:
        """Return the key of the client at a node."""
        # A search and no table: only the few that an exchange still waits for are looked up.
        return next((client.key for client in self.online if client.node_id == node_id), f"node {node_id}")

    def random(self, purpose: Purpose | str) -> np.random.Generator:
        """Return the generator of one of the server's draws in this round; an author's own draw has a name."""
        return generator(self.seed, self.server_round, purpose)

    def newcomers(self, known: Container[str]) -> list[Client]:
        """Return the participants that are not among those known."""
        return [client for client in self.participants if client.key not in known]

    def train(self, groups: Mapping[str, int], settings: Mapping[str, str | float] | None = None) -> Plan[Update]:
        """Plan the exchange in which each participant in `groups` trains its model; the others sit this round out.

        Clients that have kept this round's models (`losses`) are told which of them to train.

        Raises
        ------
        RoundFailed
            If there are groups, and none of the participants is in one.
        """
        if groups and not any(client.key in groups for client in self.participants):
            given, there = (
                ", ".join(map(repr, keys[:3]))
                for keys in (list(groups), [client.key for client in self.participants])
            )
            raise RoundFailed(
                f"round {self.server_round}: none of its participants ({there}) is among the clients that are "
                f"assigned a model ({given})"
            )
        settings = settings or {}
        if self.personal is not None and self.personal.trains:
            # Settings of this exchange, such as FedProx's term, hold for the method's messages, too.
            r = replace(self, config=filled(self.config.copy(), settings)) if settings else self
            plan: Plan[Update] = self.personal.train(r, groups)
            return plan
        models, (kept_models, keepers) = self.models, self._keepers
        config = {**self.averaging.settings, **settings}
        requests = []
        for client in self.participants:
            if client.key not in groups:
                continue
            index = groups[client.key]
            model: ArrayRecord | None = models.one(index)
            mine: dict[str, object] = dict(config)
            if client.key in keepers and kept_models is not None:
                model = None
                mine |= {kinds.BANK: kept_models.token, kinds.MODEL_INDEX: index}
            requests.append(self.request(kinds.TRAIN, client, model, mine))
        return Plan(requests, lambda key, content: read_update(content, models.layout, groups[key]))

    def train_best(self, by: Literal["loss", "accuracy"] = "loss") -> Plan[Update]:
        """Plan the exchange in which each participant picks the model that is best on its data, and trains it.

        Where clients cannot do both in one exchange, they are asked for their losses first: with a method of their
        own, or while models are compared in noised sums.
        """
        r = replace(self, config=filled(self.config.copy(), {kinds.BY_ERRORS: True})) if by == "accuracy" else self
        chosen = next((found for layer in self.layers if (found := layer.choices(r)) is not None), None)
        if chosen is None and self.personal is not None and self.personal.is_active:
            replies = r.losses().replies
            chosen = {key: int(np.argmin(reply.losses)) for key, reply in replies.ok}
        return r.train_selected() if chosen is None else r.train(chosen)

    def train_selected(self, settings: Mapping[str, float] | None = None) -> Plan[Update]:
        """Plan one exchange in which each participant picks its lowest-loss model and trains it."""
        layout, count = self.models.layout, self.models.count
        config = {**self.averaging.settings, **(settings or {})}
        requests = [
            self.request(kinds.TRAIN_SELECT, client, self.models.record, config) for client in self.participants
        ]
        return Plan(requests, lambda _, content: codec.read(SelectedUpdate, content, layout=layout, K=count))

    def losses(self, clients: Sequence[Client] | None = None, models: Models | None = None) -> LossVectors:
        """Ask clients for their losses of each model (one exchange), as far as they are not refused as outliers.

        Without `clients` all participants are asked, and the round needs a quorum of them; those named are asked for
        what lasts, with all of their samples.
        """
        everybody = clients is None
        asked = self.participants if clients is None else clients
        models = self.models if models is None else models
        for layer in self.layers if everybody else ():
            models = layer.compared(models, self)
        r = replace(self, models=models) if everybody else self
        with self.meter.part("losses"):
            replies = r.ask_losses(asked, models, all_samples=not everybody)
        limit = math.inf
        for layer in self.layers:
            replies, limit = layer.losses(replies, limit, self, everybody)
        if everybody:
            self.require(replies, "loss vector")
            self._keepers = models, frozenset(key for key, reply in replies.ok if reply.kept)
        why = next((why for layer in self.layers if (why := layer.seals)), "")
        return LossVectors(replies, models, limit, why)

    def group(self, keys: Sequence[str], rows: Rows, k: int, cluster: Cluster, source: str = "grouping") -> Groups:
        """Return clients in `k` groups by their rows (M, D), as `cluster` groups them; see `base.layer`.

        `source` names whose clusters they are, for an error.
        """
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
        """Return the models of participants that are not `known`: each joins the nearest of frozen groups.

        A client without an answer, or that is refused as an outlier, has none.
        """
        new = self.newcomers(known)
        if not new:
            return {}
        replies = self.losses(new, frozen.models or self.models).replies
        return {key: frozen.nearest_model(reply.losses) for key, reply in replies.ok}

    def members(self, groups: Mapping[str, int], known: Container[str] | None = None) -> dict[str, int]:
        """Return the participants' part of some groups, of those that are `known`; None: of all."""
        here = [client.key for client in self.participants if client.key in groups]
        return {key: groups[key] for key in here if known is None or key in known}

    def average(self, updates: Sequence[tuple[str, Update]], *, drawn: bool = False) -> FloatArray:
        """Return the next bank (K, R): each model's updates, averaged as the run says; without any it stays.

        Groups that are `drawn` at random may be mostly hostile.
        """
        rows = Updates(opened(updates))
        for layer in self.layers:
            rows = layer.counted(rows, self)
        bank = self.averaging.next_bank(self.models, rows, rows.models, rows.examples)
        if self.personal is not None:
            bank = self.personal.averaged(self.models, rows.updates, bank)
        for layer in self.layers if drawn else ():
            bank = layer.bounded(bank, self)
        return bank

    def vectors(self, vectors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return what clients sent of themselves (D,), by key, as an algorithm may keep it over rounds."""
        for layer in self.layers:
            vectors = layer.vectors(vectors, self)
        return vectors

    def copies(self, rows: Mapping[str, NDArray[np.floating]]) -> set[str]:
        """Return the clients whose rows (m, D) on folds of their data are another's."""
        if not self.may_depend_on_data:
            return set()
        return set().union(*(layer.copies(rows, self) for layer in self.layers))

    def test_assigned(self, assignment: Mapping[str, int]) -> Plan[TestResult]:
        """Plan the evaluation in which each tester that has a model tests it."""
        if self.personal is not None:
            plan: Plan[TestResult] = self.personal.test(self, assignment)
            return plan
        tested = (client.key for client in self.testers if client.key in assignment)
        return self.test({key: self.models.one(assignment[key]) for key in tested})

    def test(
        self,
        models: Mapping[str, ArrayRecord],
        settings: Mapping[str, float] | None = None,
        others: Mapping[str, Mapping[str, ArrayRecord]] | None = None,
        handler: Handler | None = None,
    ) -> Plan[TestResult]:
        """Plan the evaluation in which each tester of `models` tests the model under its key.

        With a `handler` it tests what that handler makes of the model, of the `settings` and of its own `others`.
        """
        asked, records = self.evaluation, others or {}
        config = {**asked.settings, **(settings or {})}

        def request(client: Client) -> Request:
            model, own = models[client.key], records.get(client.key)
            if handler is None:
                return self.request(kinds.EVALUATE, client, model, config, own)
            return self.request_custom(handler, client, model, config, own, category="evaluate")

        requests = [request(client) for client in self.testers if client.key in models]
        return Plan(requests, lambda _, content: asked.read(content))

    def ask_losses(self, clients: Sequence[Client], models: Models, *, all_samples: bool = False) -> Replies[Losses]:
        """Ask clients for the mean loss of each of K models on their training data (one exchange).

        With `loss_data=held_out` it is taken on the part of them that is not trained on; with `loss_batch` on a
        batch of either, unless `all_samples`, for what is decided once and lasts.

        Clients that can keep this round's models are asked to, and say whether they did.
        """
        settings: dict[str, object] = {kinds.BANK: models.token} if models is self.models else {}
        if all_samples and kinds.LOSS_BATCH in self.config:
            settings[kinds.LOSS_BATCH] = 0
        requests = [self.request(kinds.LOSSES, client, models.record, settings) for client in clients]
        raised = 0.0
        if self.privacy is not None:
            self.privacy.charge_grouping([client.key for client in clients])
            raised = self.privacy.raised_by(models.count)

        def read(_: str, content: RecordDict) -> Losses:
            reply = codec.read(Losses, content, K=models.count)
            return replace(reply, losses=reply.losses - raised) if raised else reply

        return self.ask(requests, read)

    def ask_lowest(self, clients: Sequence[Client], among: Sequence[int] | None = None) -> dict[str, int]:
        """Ask clients, if any, for their losses of the round's models; return the lowest of each that answers.

        `among` are the models that count; None: all.
        """
        if not clients:
            return {}
        offered = list(range(self.models.count) if among is None else among)
        with self.meter.part("losses"):
            replies = self.ask_losses(clients, self.models)
        return {key: offered[int(np.argmin(reply.losses[offered]))] for key, reply in replies.ok}

    def ask(self, requests: Sequence[Request], read: Read[T]) -> Replies[T]:
        """Send the requests of one exchange and wait for their replies; see `triage`."""
        replies = send(self.grid, [request.message for request in requests], self.patience, self.name_of)
        return self.triage(requests, replies, read)

    def request(
        self,
        kind: str,
        client: Client,
        arrays: ArrayRecord | None,
        settings: Mapping[str, object],
        others: Mapping[str, ArrayRecord] | None = None,
    ) -> Request:
        """Build one message; each has a RecordDict and a ConfigRecord of its own, the arrays are shared.

        `others` are further array records by name.
        """
        for layer in self.layers:
            layer.allow(kind, settings.get(kinds.HANDLER))
        # A copy of the checked record is ten times as fast as a new one, which checks every value again.
        own = {**settings, kinds.SERVER_ROUND: self.server_round, kinds.CLIENT_NUMBER: client.number}
        sent: dict[str, ArrayRecord] = {**(others or {})}
        if arrays is not None:
            sent[kinds.ARRAYS] = arrays
        models = {}
        if self.narrowing is not None:
            own[kinds.WIRE] = self.narrowing.wire
            models = {name: sent[name] for name in MODEL_RECORDS if name in sent}
            sent |= {name: self.narrowing.record(record) for name, record in models.items()}
            if (kept := settings.get(kinds.MODEL_INDEX)) is not None:
                models[kinds.ARRAYS] = self.models.one(int(str(kept)))
        content = filled(RecordDict(), {kinds.CONFIG: filled(self.config.copy(), own), **sent})
        message = Message(content, client.node_id, kind, ttl=self.timeout, group_id=str(self.server_round))
        return Request(client.key, message, models)

    def query(
        self,
        handler: Handler,
        clients: Iterable[Client],
        *,
        returns: Mapping[str, Sequence[int]] | None = None,
        numbers: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        model: int | None = None,
        needed: bool = False,
    ) -> dict[str, Answer]:
        """Ask clients something by a handler of the strategy's own (one exchange); return the valid answers.

        Parameters
        ----------
        handler
            One of the strategy's `client_handlers`.
        clients
            Whom to ask.
        returns
            Shape of each array that the handler returns, by name.
        numbers
            Names of the numbers that it returns.
        settings
            What the message tells the handler.
        model
            The model that is sent; None: none.
        needed
            Whether the round is repeated where fewer than the quorum send a valid answer.

        Returns
        -------
        dict
            By client key, sorted. Whoever sent other names, shapes or types, or a value that is not finite, is left
            out and counted as invalid.
        """
        replies = self.ask_custom(
            handler,
            clients,
            lambda _, content: read_answer(content, returns or {}, numbers),
            None if model is None else self.models.one(model),
            settings,
        )
        if needed:
            self.require(replies, "answer")
        return dict(replies.ok)

    def ask_custom(
        self,
        handler: Handler,
        clients: Iterable[Client],
        read: Read[T],
        arrays: ArrayRecord | None = None,
        settings: Mapping[str, object] | None = None,
        category: Literal["train", "evaluate", "query"] = "query",
    ) -> Replies[T]:
        """Ask clients, all the same, by a client handler (one exchange); see `request_custom`."""
        requests = [self.request_custom(handler, one, arrays, settings, category=category) for one in clients]
        return self.ask(requests, read)

    def request_custom(
        self,
        handler: Handler,
        client: Client,
        arrays: ArrayRecord | None = None,
        settings: Mapping[str, object] | None = None,
        others: Mapping[str, ArrayRecord] | None = None,
        category: Literal["train", "evaluate", "query"] = "train",
    ) -> Request:
        """Build a message to a client handler, an algorithm's or an author's own; see `request`.

        Raises
        ------
        ValueError
            If it is the author's and not declared: clients would not have been asked whether they allow it.
        """
        path = handler_path(handler)
        if path not in self.client_handlers and not kinds.is_built_in(path):
            raise ValueError(f"handler {path!r} is not in the strategy's client_handlers={self.client_handlers}")
        own = {**(settings or {}), kinds.HANDLER: path}
        return self.request(f"{category}.{kinds.CUSTOM}", client, arrays, own, others)

    def triage(self, requests: Sequence[Request], replies: list[Message], read: Read[T]) -> Replies[T]:
        """Sort and check the replies of one of the algorithm's exchanges, and count them and their bytes."""
        # Mostly participants are asked; all that are online may be a hundred times as many.
        introduced = {client.key: client.num_examples for client in self.participants}
        if any(request.key not in introduced for request in requests):
            introduced = {client.key: client.num_examples for client in self.online} | introduced

        asked = {request.key: request for request in requests} if self.narrowing is not None else {}

        def checked(key: str, content: RecordDict) -> T:
            if (request := asked.get(key)) is not None:
                sent = request.message
                config = sent.content[kinds.CONFIG]
                content = widen_reply(content, sent.metadata.message_type, config, request.models)
            reading = read(key, content)
            check_examples(getattr(reading, "num_examples", None), introduced.get(key))
            return reading

        triaged = sort_replies(requests, replies, checked)
        self.meter.count_exchange(requests, replies, triaged)
        return triaged

    def note_vectors(self, kind: str, keys: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors by which this round compares clients, for the results; it changes nothing.

        Of vectors with more than `MOST_NUMBERS` entries a random projection is kept, one for the whole run. A second
        call in a round replaces the first one's.

        Parameters
        ----------
        kind
            What they are: "losses", "updates", ...
        keys, vectors
            The clients and the vector of each, all of one length. Of nobody nothing is kept.

        Raises
        ------
        ValueError
            If there are not as many vectors as keys, or they differ in length.
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
        """Hold an exchange that the round stands on to the quorum.

        Raises
        ------
        RoundFailed
            If fewer clients than the quorum sent a valid reply; `TrainingDiverged` where that is because losses or
            models are not finite. The round is repeated, unless all clients of this process have failed alike and the
            strategy has handlers of its own: the fault is in these.
        """
        needed = self.patience.needed(replies.asked)
        if len(replies.ok) < needed:
            found = f"{len(replies.ok) or 'none'} of {replies.asked} asked, and needs {needed}"
            text = f"round {self.server_round} returned a valid {what} from {found}: {replies.failures()}"
            is_here = bool(self.client_handlers) and getattr(self.grid, "fails_alike", False)
            kind = TrainingDiverged if replies.has_diverged else RoundFailed
            raise kind(text, certain=is_here and replies.is_one_error)

    def reject_outliers(self, updates: Replies[Update], known: float = 0.0) -> Replies[Update]:
        """Return the updates without those whose values no benign training gives (`core.outliers`).

        `known` is the largest value in what others returned before on the same request; with it one update alone is
        judged, too.
        """
        if not updates.ok:
            return updates
        if far := self._far_terms(updates):
            return self.reject_outliers(self.reject(updates, far, OUTLIER), known)
        others = [update.others for _, update in updates.ok]
        # Of most rounds what is known of each update already shows that none is larger than the models allow.
        most_allowed = UPDATE_FACTOR * self.models.largest
        bounds = (getattr(update.values, "bound", math.inf) for _, update in updates.ok)
        if all(values is None for values in others) and all(bound <= most_allowed for bound in bounds):
            return updates
        # Only the largest value counts: one a client is enough, and no copy of all vectors is made.
        largest = np.array([[update.largest] for _, update in updates.ok])
        found = outlier_updates(largest, self.models.bank, known=known)
        if any(values is not None for values in others):
            each = zip(others, updates.ok, strict=True)
            most = [[np.abs(one.vector if own is None else own).max(initial=0.0)] for own, (_, one) in each]
            found |= outlier_updates(np.array(most, dtype=np.float64), self.models.bank, known=known)
        keys = {key for (key, _), is_outlier in zip(updates.ok, found, strict=True) if is_outlier}
        return self.reject(updates, keys, OUTLIER)

    def _far_terms(self, updates: Replies[Update]) -> set[str]:
        """Return the clients whose gradients or Hessians no benign training gives."""
        own = [(key, one, one.gradient, one.hessian) for key, one in updates.ok]
        known = [
            (key, one, slope, curve) for key, one, slope, curve in own if slope is not None and curve is not None
        ]
        if not known:
            return set()
        slopes = np.array([np.abs(slope).max(initial=0.0) / one.num_examples for _, one, slope, _ in known])
        curvatures = np.array([np.diagonal(curve).max(initial=0.0) / one.num_examples for _, one, _, curve in known])
        length = max(lower_median(np.array([one.largest for _, one, _, _ in known])), self.models.largest)
        found = outlier_terms(slopes, curvatures, length)
        return {key for (key, *_), is_outlier in zip(known, found, strict=True) if is_outlier}

    def reject(self, replies: Replies[T], keys: Container[str], reason: str) -> Replies[T]:
        """Return the replies without those of `keys`, which count as invalid from now on."""
        left = replies.rejected(keys, reason)
        self.meter.reject({key: reason for key, _ in replies.ok if key in keys})
        return left
