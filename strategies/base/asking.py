"""`Asking`: a round's clients and the exchanges with them; replies are checked and counted."""

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Meter, Read, Replies, Request, T, send, sort_replies
from florets.strategies.base.federation import RoundFailed, TrainingDiverged
from florets.strategies.base.models import Models
from florets.strategies.base.report import MOST_NUMBERS, Client, Compared, Vectors, sketched
from florets.task.given import hold
from florets.task.randomness import Purpose, generator
from florets.task.wire import kinds
from florets.task.wire.flower import filled
from florets.task.wire.replies import Answer, check_examples, read_answer

_PATH = "_florets_path"

Handler = str | Callable[..., Any]


def handler_path(handler: Handler) -> str:
    """Return the import path ``package.module:function`` of a handler; one that is a path already stays as it is.

    A handler from a notebook or a script has the path of the copy that other processes are given. ValueError if a
    client cannot import the function: it must stand at the top of its module.
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


@dataclass(eq=False)
class Asking:
    """One round: its number, clients and models, and the means of talking to the clients.

    `online` clients are sorted by key, as the `participants` sampled of them. `models` are those that the round
    starts from; after aggregation, those that it ends with. `timeout` are the seconds until an exchange ends,
    complete or not; `quorum` is the fraction of the asked clients whose valid replies the round needs.
    """

    server_round: int
    seed: int
    config: ConfigRecord
    grid: Grid
    online: Sequence[Client]
    participants: Sequence[Client]
    models: Models
    timeout: float
    quorum: float = 0.0
    meter: Meter = field(default_factory=Meter)
    client_handlers: tuple[str, ...] = ()
    layers: Sequence[Any] = ()

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
        needed: bool = False,
    ) -> dict[str, Answer]:
        """Ask clients something by a handler of the strategy's own (one exchange); return the valid answers by key.

        Parameters
        ----------
        handler
            One of the strategy's `client_handlers`.
        returns, numbers
            Shape of each array that the handler returns, by name, and names of the numbers that it returns.
        settings
            What the message tells the handler.
        model
            The model that is sent; None: none.
        needed
            Whether the round is repeated where fewer than the quorum send a valid answer.
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
        """Build a message to a client handler; ValueError if it is the author's and not declared. See `request`."""
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

        def checked(key: str, content: RecordDict) -> T:
            reading = read(key, content)
            check_examples(getattr(reading, "num_examples", None), introduced.get(key))
            return reading

        triaged = sort_replies(requests, replies, checked)
        self.meter.count_exchange(requests, replies, triaged)
        return triaged

    def note_vectors(self, kind: str, keys: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors by which this round compares clients, for the results only.

        Of vectors with more than `MOST_NUMBERS` entries a random projection is kept, one for the whole run. A second
        call in a round replaces the first one's. `kind` says what they are: "losses", "updates", ...
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
        """Raise RoundFailed if an exchange that the round needs is below the quorum.

        The round is repeated, unless all clients of this process have failed alike and the strategy has handlers of
        its own: the fault is in these. `TrainingDiverged` where losses or models are not finite.
        """
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        needed = max(1, math.ceil(self.quorum * replies.asked - 1e-9))
        if len(replies.ok) < needed:
            found = f"{len(replies.ok) or 'none'} of {replies.asked} asked, and needs {needed}"
            text = f"round {self.server_round} returned a valid {what} from {found}: {replies.failures()}"
            is_here = bool(self.client_handlers) and getattr(self.grid, "fails_alike", False)
            kind = TrainingDiverged if replies.has_diverged else RoundFailed
            raise kind(text, certain=is_here and replies.is_one_error)

    def reject(self, replies: Replies[T], keys: Container[str], reason: str) -> Replies[T]:
        """Return the replies without those of `keys`, which count as invalid from now on."""
        left = replies.rejected(keys, reason)
        self.meter.reject({key: reason for key, _ in replies.ok if key in keys})
        return left
