"""Blocks of like messages, of which losses, training and tests are computed together; handlers then answer each."""

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from numpy.typing import NDArray

from florets.client_app.client import NOTHING, Client, Prepared, at_hand
from florets.client_app.session import State, session
from florets.client_app.training import reported, sends_gradient, trains_by_newton
from florets.task.client_data import Part
from florets.task.randomness import Purpose
from florets.task.settings import PLAIN_LOSSES
from florets.task.training import full_steps, vectorised
from florets.task.training.losses import Evaluated
from florets.task.training.networks import network_of
from florets.task.wire import kinds

log = logging.getLogger("florets")

_TRAINING = (kinds.TRAIN, kinds.TRAIN_SELECT)
_COMPARING = (kinds.LOSSES, kinds.TRAIN_SELECT)
_BLOCKED = frozenset({*_TRAINING, *_COMPARING, kinds.EVALUATE})
_OWN = frozenset({kinds.CLIENT_NUMBER, kinds.MODEL_INDEX})
"""Settings that differ from client to client of one exchange, and do not decide on how a message is answered."""


@dataclass(frozen=True)
class _Asked:
    """One message that may be answered together with others that are like it."""

    place: int
    kind: str
    client: Client
    like: Hashable
    samples: int


def in_blocks(sent: Sequence[tuple[Message, Context]], size: int) -> Iterator[list[int]]:
    """Yield the places of all messages, block by block; a block's results are at hand until the next."""
    alone, blocks = _cut(sent, size)
    if alone:
        yield alone
    for block in blocks:
        _prepare(block)
        at_hand.update((id(sent[asked.place][0]), asked.client) for asked in block)
        try:
            yield [asked.place for asked in block]
        finally:
            at_hand.clear()
        # Clients outlast their block, and its models are as large as all replies.
        for asked in block:
            asked.client.prepared = NOTHING


def cut_blocks(sent: Sequence[tuple[Message, Context]], size: int) -> tuple[list[int], list[list[int]]]:
    """Return the places of those messages that are answered alone, and of each block, as `in_blocks` takes them."""
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
        if kind in _TRAINING and sends_gradient(client):
            return None
        if (client.hides_records and kind != kinds.EVALUATE) or client.config.get(kinds.BY_ERRORS):
            return None
        # Most settings are the exchange's own: the very objects, which are alive as long as its messages.
        config = dict(client.config)
        for name in _OWN:
            config.pop(name, None)
        same = (kind, context.node_config.get(kinds.DEVICE), *config, *map(id, config.values()))
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
    """Return what messages that are answered together have in common; None: this one is answered alone."""
    if client.loss not in PLAIN_LOSSES or not vectorised.takes_blocks(client.device):
        return None
    if network_of(client.module) is None:
        return None
    like = (kind, client.config.get(kinds.TASK), str(client.device))
    if kind not in _TRAINING:
        return like
    # Steps on the plain loss, of which nobody asks more than the model.
    asks_more = (kinds.STEP_LOSSES, kinds.EXACT_PROXIMAL)
    if trains_by_newton(client) or any(map(client.config.get, asks_more)) or not client.objective.is_plain:
        return None
    return like, client.training


def _prepare(block: Sequence[_Asked]) -> None:
    """Compute together what can be for the messages of a block, and leave it with their clients."""
    if len(block) < 2:
        return
    start = perf_counter()
    try:
        results = _computed(block)
    except Exception:  # one client's fault must cost no other its reply: each is answered alone, and its own says so
        log.debug("%d messages could not be answered together", len(block), exc_info=True)
        return
    seconds, samples = perf_counter() - start, sum(asked.samples for asked in block)
    for asked, own in zip(block, results, strict=True):
        asked.client.prepared = Prepared(*own, seconds * asked.samples / samples)


def _computed(
    block: Sequence[_Asked],
) -> list[tuple[NDArray[np.float64] | None, vectorised.Trained | None, Evaluated | None]]:
    """Return losses, training and test of each message of a block, as far as its kind has them."""
    kind, first = block[0].kind, block[0].client
    module, loss = first.module, first.loss
    losses: dict[int, NDArray[np.float64]] = {}
    starts: dict[int, State] = {}
    tests: dict[int, Evaluated] = {}
    for states, rows in _by_record(block):
        clients = [block[row].client for row in rows]
        if kind in _COMPARING:
            each = vectorised.joined_losses(module, states, [client.loss_data for client in clients], loss)
            losses.update(zip(rows, reported(each), strict=True))
        if kind in _TRAINING:
            # The model that each client would choose, or that the message names.
            for row, client in zip(rows, clients, strict=True):
                index = np.argmin(losses[row]) if row in losses else client.number(kinds.MODEL_INDEX, 0)
                starts[row] = states[int(index)]
        if kind == kinds.EVALUATE:
            tested: list[Part] = [(client.data.x_test, client.data.y_test) for client in clients]
            tests.update(zip(rows, vectorised.joined_tests(module, states[0], tested, loss), strict=True))
    trained: dict[int, vectorised.Trained] = {}
    if starts and (network := network_of(module)) is not None:
        shares = []
        for row, state in sorted(starts.items()):
            client = block[row].client
            draws = partial(client.random, Purpose.LOCAL_TRAINING)
            shares.append(vectorised.Share(state, client.data.x_train, client.data.y_train, draws))
        largest = max((own.x for own in shares), key=len)
        size, update = vectorised.stack_size(module, largest, first.training.batch_size), vectorised.stacked_update
        if full_steps.pays_off(network, largest, first.training):
            size, update = vectorised.LEAST_BLOCK, full_steps.stacked_full_steps
        # Of one alone the usual training is faster.
        for begin in range(0, len(shares) if size > 1 else 0, size):
            done = update(network, shares[begin : begin + size], loss, first.training)
            trained.update(enumerate(done, begin))
    return [(losses.get(row), trained.get(row), tests.get(row)) for row in range(len(block))]


def _by_record(block: Sequence[_Asked]) -> Iterator[tuple[list[State], list[int]]]:
    """Yield the models of each record, and the rows of the block's messages that have it: they share few records."""
    records: list[ArrayRecord] = []
    rows: dict[int, list[int]] = {}
    for row, asked in enumerate(block):
        is_kept = kinds.MODEL_INDEX in asked.client.config
        records.append(session.kept(asked.client.config) if is_kept else asked.client.arrays())
        rows.setdefault(id(records[-1]), []).append(row)
    for own in rows.values():
        client = block[own[0]].client
        yield [client.on_device(state) for state in session.states(records[own[0]])], own
