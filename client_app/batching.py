"""Blocks of like messages, of which losses, local training and tests are computed together.

The handlers then answer each message as always, from results that are at hand (`florets.client_app.client`). What
cannot be computed together, or fails, is left to them.
"""

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.client_app.client import NOTHING, Client, Prepared, clients_at_hand
from florets.client_app.messages import reported
from florets.client_app.session import State, session
from florets.client_app.training import sends_gradient
from florets.task.client_data import Part
from florets.task.randomness import Purpose
from florets.task.training.full_steps import full_steps_update, pays
from florets.task.training.joined import dense_losses, joined_losses, joined_tests
from florets.task.training.linear import takes_full_steps
from florets.task.training.linear_blocks import linear_updates
from florets.task.training.losses import Evaluated
from florets.task.training.settings import Training
from florets.task.training.vectorised import (
    FULL_STEPS_STACK,
    Dense,
    Network,
    Share,
    Trained,
    device_stack_size,
    network_of,
    stack_size,
    stacked_update,
    takes_blocks,
)
from florets.task.wire import kinds

log = logging.getLogger("florets")

_TRAINING = (kinds.TRAIN, kinds.TRAIN_SELECT)
_COMPARING = (kinds.LOSSES, kinds.TRAIN_SELECT)
_BLOCKED = frozenset({*_TRAINING, *_COMPARING, kinds.EVALUATE})
_Group = tuple[list[State], list[int]]
"""Models of one record, and the rows of those messages of a block that have it."""

_OWN = frozenset({kinds.CLIENT_NUMBER, kinds.HISTORY, kinds.MODEL_INDEX})
"""Settings that differ from client to client of one exchange, and do not decide on how a message is answered."""


@dataclass(frozen=True)
class _Asked:
    """One message that may be answered together with others that are like it."""

    place: int
    kind: str
    client: Client
    like: Hashable
    samples: int

    @property
    def record(self) -> ArrayRecord:
        """The record that the message's model is in."""
        if kinds.MODEL_INDEX in self.client.config:
            return session.kept(self.client.config)
        return self.client.arrays()


def in_blocks(sent: Sequence[tuple[Message, Context]], size: int) -> Iterator[list[int]]:
    """Yield the places of all messages, block by block; each block's results are at hand until the next is asked for.

    Parameters
    ----------
    sent
        Messages of one exchange, and their clients' contexts.
    size
        Most messages of a block that is computed together.
    """
    alone, blocks = _cut(sent, size)
    if alone:
        yield alone
    for block in blocks:
        for asked, prepared in zip(block, _prepared(block), strict=True):
            asked.client.prepared = prepared
        with clients_at_hand({asked.client.message_id: asked.client for asked in block}):
            yield [asked.place for asked in block]
        # Clients outlast their block, and its models are as large as all replies.
        for asked in block:
            asked.client.prepared = NOTHING


def cut_blocks(sent: Sequence[tuple[Message, Context]], size: int) -> tuple[list[int], list[list[int]]]:
    """Return the places of those messages that are answered alone, and of each block, without computing anything.

    `in_blocks` takes what stands at the places of one block, in their order, for one block again.
    """
    alone, blocks = _cut(sent, size)
    return alone, [[asked.place for asked in block] for block in blocks]


def _cut(sent: Sequence[tuple[Message, Context]], size: int) -> tuple[list[int], list[list[_Asked]]]:
    alone: list[int] = []
    alike: dict[Hashable, list[_Asked]] = {}
    likes: dict[Hashable, Hashable | None] = {}
    for place, (message, context) in enumerate(sent):
        asked = _asked(place, message, context, likes)
        if asked is None:
            alone.append(place)
        else:
            alike.setdefault(asked.like, []).append(asked)
    blocks = []
    for group in alike.values():
        # Clients of like sizes wait least for one another. The order is the messages' own among equals.
        group.sort(key=lambda asked: -asked.samples)
        blocks += [group[start : start + size] for start in range(0, len(group), size)]
    return alone, blocks


def _asked(place: int, message: Message, context: Context, likes: dict[Hashable, Hashable | None]) -> _Asked | None:
    """Return a message that can be answered together with others, else None; `likes` is filled on the way."""
    kind = message.metadata.message_type
    if kind not in _BLOCKED:
        return None
    try:
        client = Client(message, context)
        # Most settings are the exchange's own: the very objects, which are alive as long as its messages.
        told = dict(client.config)
        for name in _OWN:
            told.pop(name, None)
        same = (kind, context.node_config.get(kinds.DEVICE), *told, *map(id, told.values()))
        if same not in likes:
            likes[same] = _likeness(kind, client)
        if (like := likes[same]) is None:
            return None
        samples = client.data.x_test.shape[0] if kind == kinds.EVALUATE else client.num_examples
    except Exception:  # answered alone the message fails in the same way, and its reply says why
        log.debug("a message cannot be answered together with others", exc_info=True)
        return None
    return _Asked(place, kind, client, like, samples) if samples else None


def _likeness(kind: str, client: Client) -> Hashable | None:
    """Return what messages that are answered together have in common; None: this one is answered alone.

    What single clients are told (`_OWN`) must not count.
    """
    # Some test a model of their own making, and not the one that is sent.
    if kind == kinds.EVALUATE and (kinds.ADAPTATION_STEP in client.config or kinds.OWN in client.config):
        return None
    if not takes_blocks(client.device) or _network(client) is None:
        return None
    like = (kind, client.config.get(kinds.TASK), str(client.device))
    if kind not in _TRAINING:
        return like
    return (like, client.training) if _trains_plainly(client) else None


def _trains_plainly(client: Client) -> bool:
    """Say whether local training is steps on the plain loss, of which nobody asks more than the model."""
    training, asks_more = client.training, (kinds.STEP_LOSSES, kinds.EXACT_PROXIMAL)
    if sends_gradient(client) or any(map(client.config.get, asks_more)):
        return False
    plain_loss = client.objective.is_plain and training.class_weights == "none" and training.augment is None
    return plain_loss and training.is_plain


_networks: list[tuple[Module, Network | None]] = []


def _network(client: Client) -> Network | None:
    """Return the network that the process's one module is; found once."""
    module = client.module
    if not _networks or _networks[0][0] is not module:
        _networks[:] = [(module, network_of(module))]
    return _networks[0][1]


def _prepared(block: Sequence[_Asked]) -> list[Prepared]:
    """Return what can be computed for the messages of a block together, in their order."""
    nothing = [NOTHING] * len(block)
    if len(block) < 2:
        return nothing
    start = perf_counter()
    try:
        found = _computed(block)
    except Exception:  # one client's fault must cost no other its reply: each is answered alone, and its own says so
        log.debug("%d messages could not be answered together", len(block), exc_info=True)
        return nothing
    seconds, samples = perf_counter() - start, sum(asked.samples for asked in block)
    return [
        Prepared(*results, seconds * asked.samples / samples) for asked, results in zip(block, found, strict=True)
    ]


def _computed(block: Sequence[_Asked]) -> list[tuple[NDArray[np.float64] | None, Trained | None, Evaluated | None]]:
    """Return losses, training and test of each message of a block, as far as its kind has them."""
    kind = block[0].kind
    groups = _by_record(block)
    losses: list[NDArray[np.float64]] | list[None] = [None] * len(block)
    firsts: list[Tensor | None] = [None] * len(block)
    trained: list[Trained] | list[None] = [None] * len(block)
    tested: list[Evaluated] | list[None] = [None] * len(block)
    if kind in _COMPARING:
        losses, firsts = _losses(block, groups)
    if kind in _TRAINING:
        trained = _trained(block, _starts(block, groups, losses), firsts)
    if kind == kinds.EVALUATE:
        tested = _tested(block, groups)
    return list(zip(losses, trained, tested, strict=True))


def _by_record(block: Sequence[_Asked]) -> list[_Group]:
    """Return the models of each record, and which of the block's messages have it.

    Messages share few records, and each is unpacked once.
    """
    found: dict[int, _Group] = {}
    for row, asked in enumerate(block):
        record = asked.record
        if id(record) not in found:
            found[id(record)] = [asked.client.near(state) for state in session.states(record)], []
        found[id(record)][1].append(row)
    return list(found.values())


def _losses(
    block: Sequence[_Asked], groups: Sequence[_Group]
) -> tuple[list[NDArray[np.float64]], list[Tensor | None]]:
    """Return each message's losses, and what training begins with where they are taken on the training data."""
    found: dict[int, NDArray[np.float64]] = {}
    firsts: list[Tensor | None] = [None] * len(block)
    for states, rows in groups:
        clients = [block[row].client for row in rows]
        parts = [client.loss_data for client in clients]
        network = _network(clients[0])
        if block[0].kind == kinds.TRAIN_SELECT and isinstance(network, Dense) and _by_full_steps(block, states[0]):
            losses, said = dense_losses(network, states, parts, clients[0].loss, _chosen)
            for row, client, first in zip(rows, clients, said, strict=True):
                firsts[row] = first if client.loss_data[0] is client.data.x_train else None
        else:
            losses = joined_losses(clients[0].module, states, parts, clients[0].loss)
        found.update(zip(rows, reported(losses), strict=True))
    return [found[row] for row in range(len(block))], firsts


def _tested(block: Sequence[_Asked], groups: Sequence[_Group]) -> list[Evaluated]:
    found: dict[int, Evaluated] = {}
    for states, rows in groups:
        clients = [block[row].client for row in rows]
        parts: list[Part] = [(client.data.x_test, client.data.y_test) for client in clients]
        found.update(zip(rows, joined_tests(clients[0].module, states[0], parts, clients[0].loss), strict=True))
    return [found[row] for row in range(len(block))]


def _starts(
    block: Sequence[_Asked], groups: Sequence[_Group], losses: Sequence[NDArray[np.float64] | None]
) -> list[State]:
    """Return the model that each client trains: the one that it would choose, or that the message names."""
    found: dict[int, State] = {}
    for states, rows in groups:
        for row in rows:
            own = losses[row]
            index = block[row].client.number(kinds.MODEL_INDEX, 0) if own is None else np.argmin(own)
            found[row] = states[int(index)]
    return [found[row] for row in range(len(block))]


def _chosen(losses: NDArray[np.float64]) -> int:
    """Return the model that a client chooses; see `florets.client_app.handlers.train`."""
    return int(np.argmin(reported(losses)))


def _by_full_steps(block: Sequence[_Asked], state: State) -> bool:
    first = block[0].client
    network, most = _network(first), max(asked.samples for asked in block)
    # Inner products save multiplications, of which a GPU has enough, and take a call for each client.
    able = first.device.type == "cpu"
    settings, in_numpy = first.training, first.linear is not None
    return isinstance(network, Dense) and able and pays(network, state, most, settings, in_numpy)


def _trained(block: Sequence[_Asked], starts: Sequence[State], firsts: Sequence[Tensor | None]) -> list[Trained]:
    first = block[0].client
    network, settings = _network(first), first.training
    assert network is not None
    shares = [
        Share(
            state,
            asked.client.data.x_train,
            asked.client.data.y_train,
            partial(asked.client.random, Purpose.LOCAL_TRAINING),
            said,
        )
        for asked, state, said in zip(block, starts, firsts, strict=True)
    ]
    by_full_steps = _by_full_steps(block, starts[0])
    linear = first.linear
    if linear and not by_full_steps and takes_full_steps(settings, max(asked.samples for asked in block)):
        return linear_updates(linear, shares, first.loss, settings)
    size = FULL_STEPS_STACK if by_full_steps else _stack_size(block, network, starts[0], settings)
    trained: list[Trained] = []
    for begin in range(0, len(shares), size):
        some = shares[begin : begin + size]
        if by_full_steps and isinstance(network, Dense):
            trained += full_steps_update(network, some, first.loss, settings)
        else:
            trained += stacked_update(network, some, first.loss, settings)
    return trained


def _stack_size(block: Sequence[_Asked], network: Network, state: State, settings: Training) -> int:
    first = block[0].client
    if first.device.type == "cpu":
        return stack_size(first.module)
    largest = max(block, key=lambda asked: asked.samples).client.data.x_train
    return device_stack_size(network, state, largest, settings.batch_size)
