"""`Round`: what an algorithm can do in a round; `Plan`: its training exchange or its test."""

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from florets.strategies.base.asking import Asking, Handler
from florets.strategies.base.evaluation import EvaluationSettings
from florets.strategies.base.exchange import Read, Replies, Request
from florets.strategies.base.federation import RoundFailed
from florets.strategies.base.groups import Cluster, Frozen, Grouping, Groups, Rows, grouped
from florets.strategies.base.models import Averaging, Models, Updates
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.flower import filled
from florets.task.wire.replies import Losses, SelectedUpdate, Update, read_update

R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Plan(Generic[R]):
    """One exchange of a round: its training or its test.

    `read` reads a reply. `keep` keeps the clients' own part of the valid updates, and returns those of the shared
    models; `reveal` makes updates of masked replies. `groups` has the model that each client is asked to train; empty
    where clients choose, or train something else.
    """

    requests: list[Request]
    read: Read[R]
    keep: Callable[[Sequence[tuple[str, Update]]], Sequence[tuple[str, Update]]] | None = None
    reveal: Callable[[Replies[Any]], Replies[Update]] | None = None
    groups: Mapping[str, int] = field(default_factory=dict)


Steps = Generator[Plan[Update], Sequence[tuple[str, Update]], FloatArray | None]
"""A round of an algorithm: it yields the training exchange, gets the valid updates, and returns the next bank."""


class Sealed:
    """What an algorithm may only hand on, to `Round.average` or `Round.group`: single clients' are not protected."""

    def __init__(self, values: Any, why: str) -> None:
        self._values, self._why = values, why

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, _: Any) -> Any:
        raise ValueError(self._why)

    def __getattr__(self, _: str) -> Any:
        raise ValueError(self._why)


def opened(values: Any) -> Any:
    """Return what may be sealed, for code that averages or groups it, or protects single parts of it."""
    return vars(values)["_values"] if isinstance(values, Sealed) else values


@dataclass(frozen=True)
class LossVectors:
    """The losses of `models` that clients sent, sorted by key.

    They may only be grouped (`Round.group`) where there is a reason `why`; `received` is for code that does not look
    at single ones, or only for the client's own sake.
    """

    received: Replies[Losses]
    models: Models
    why: str = ""

    @property
    def keys(self) -> list[str]:
        """The clients."""
        return [key for key, _ in self.received.ok]

    @property
    def replies(self) -> Replies[Losses]:
        """The replies, which an algorithm may look at; ValueError where it may not."""
        if self.why:
            raise ValueError(self.why)
        return self.received

    @property
    def rows(self) -> FloatArray:
        """Their losses (M, K)."""
        found = np.stack([reply.losses for _, reply in self.received.ok])
        return Sealed(found, self.why) if self.why else found  # type: ignore[return-value]  # for `group` alone


@dataclass(eq=False, kw_only=True)
class Round(Asking):
    """One round of an algorithm: what it can ask of clients and have them train.

    An algorithm may set `models` and `participants`, to begin with another bank or other clients than were sampled.

    Attributes
    ----------
    testers, evaluation
        Clients that test, at an evaluation, and what they do in addition.
    personal
        A `Method`, in place of training and testing only the group's model; or None.
    privacy
        The run's privacy budget and its noise; None: no noise.
    answered
        Clients whose valid updates have arrived.
    """

    averaging: Averaging
    testers: Sequence[Client] = ()
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    personal: Any = None
    privacy: Any = None
    strategy: Any = None
    answered: Sequence[str] = ()
    _keepers: tuple[Models | None, frozenset[str]] = (None, frozenset())
    """Models that clients were asked to keep for their training, and those that have."""

    def train(self, groups: Mapping[str, int], settings: Mapping[str, str | float] | None = None) -> Plan[Update]:
        """Plan the exchange in which each participant in `groups` trains its model; the others sit this round out.

        Clients that have kept this round's models (`losses`) are told which of them to train. `RoundFailed` if there
        are groups, and none of the participants is in one.
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
        return Plan(requests, lambda key, content: read_update(content, models.layout, groups[key]), groups=groups)

    def train_best(self, by: Literal["loss", "accuracy"] = "loss") -> Plan[Update]:
        """Plan the exchange in which each participant picks the model that is best on its data, and trains it."""
        r = replace(self, config=filled(self.config.copy(), {kinds.BY_ERRORS: True})) if by == "accuracy" else self
        chosen = next((found for layer in self.layers if (found := layer.choices(r)) is not None), None)
        if chosen is None and self.personal is not None and self.personal.trains:
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
        """Ask clients for their losses of each model (one exchange), and leave out outliers.

        Without `clients` all participants are asked, and the round needs a quorum of them; clients that are given are
        asked for losses on all of their samples, because what follows lasts.
        """
        everybody = clients is None
        asked = self.participants if clients is None else clients
        models = self.models if models is None else models
        for layer in self.layers if everybody else ():
            models = layer.compared(models, self)
        r = replace(self, models=models) if everybody else self
        with self.meter.part("losses"):
            replies = r._losses_of(asked, models, all_samples=not everybody)
        for layer in self.layers:
            replies = layer.losses(replies, self, everybody)
        if everybody:
            self.require(replies, "loss vector")
            self._keepers = models, frozenset(key for key, reply in replies.ok if reply.kept)
            self.note_vectors("losses", [key for key, _ in replies.ok], [reply.losses for _, reply in replies.ok])
        return LossVectors(replies, models, self._seal_of_losses)

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
        """Return the models of participants that are not `known`: each joins the nearest of frozen groups.

        A client without an answer, or an outlier, has none.
        """
        new = self.newcomers(known)
        if not new:
            return {}
        # Only where a client itself belongs depends on its losses.
        replies = self.losses(new, frozen.models or self.models).received
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
        bank = self.averaging.next_bank(self.models, rows, rows.models, rows.examples)
        if self.personal is not None:
            bank = self.personal.averaged(self.models, rows.updates, bank)
        for layer in self.layers if drawn else ():
            bank = layer.bounded(bank, self)
        return bank

    def vectors(self, vectors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return clients' own vectors (D,), by key, as an algorithm may keep them over rounds."""
        for layer in self.layers:
            vectors = layer.vectors(vectors, self)
        return vectors

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

        With a `handler` it tests what the handler makes of the model, the `settings` and its own `others`.
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

        With `loss_data=held_out` it is taken on the part that is not trained on; with `loss_batch` on a batch of
        either, unless `all_samples` (for decisions that last). ValueError where no single ones may be looked at:
        `losses` and `group` are the way then.
        """
        if why := self._seal_of_losses:
            raise ValueError(why)
        return self._losses_of(clients, models, all_samples)

    @property
    def _seal_of_losses(self) -> str:
        return next((why for layer in self.layers if (why := layer.seals_losses)), "")

    def _losses_of(self, clients: Sequence[Client], models: Models, all_samples: bool = False) -> Replies[Losses]:
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
        """Ask clients, if any, for losses of the round's models; return the lowest of each, of those `among`."""
        if not clients:
            return {}
        offered = list(range(self.models.count) if among is None else among)
        with self.meter.part("losses"):
            replies = self._losses_of(clients, self.models)
        return {key: offered[int(np.argmin(reply.losses[offered]))] for key, reply in replies.ok}
