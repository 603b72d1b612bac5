"""The ClientApp: one handler for each message kind, within its deadline, without foreign error texts."""

import dis
import faulthandler
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic, perf_counter
from types import FunctionType

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from florets.client_app.caps import Limits
from florets.client_app.client import Client
from florets.client_app.handlers.custom import custom
from florets.client_app.handlers.estimate import estimate
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.handlers.hello import describe, hello
from florets.client_app.handlers.secure import keys, masked, refuse_clear, shares, unmask
from florets.client_app.node import (
    config_of,
    consent_of,
    has_process_of_its_own,
    is_simulated,
    with_folders_config,
    with_node_config,
)
from florets.client_app.policy import answered
from florets.client_app.session import session
from florets.client_app.training import losses, train, train_select
from florets.task.consent import Refused
from florets.task.device import one_thread_for_good
from florets.task.imported import import_as_caller_did, raised_in
from florets.task.node_config import COLUMNS, NUM_PARTITIONS, PARTITION_ID, SECONDS
from florets.task.registry import OwnCodeFailed
from florets.task.tested import Work
from florets.task.training.losses import counted
from florets.task.wire import kinds
from florets.task.wire.flower import become_task, filled
from florets.task.wire.noise import ANSWERED
from florets.task.wire.parcels import pack_replies, unpack

Handler = Callable[[Message, Context], Message]


def within_deadline(message: Message, context: Context, call_next: Handler) -> Message:
    """Handle a message; on a deployed node, end the process where that takes longer than the message lives.

    A SuperNode of Flower 1.41 waits for its ClientApp's reply without end, and would miss every later round.
    """
    if not has_process_of_its_own():
        return call_next(message, context)
    # Its thread is not Python's: it also ends what hangs in C code, and tells the node's log where that was.
    seconds = min(message.metadata.ttl, Limits(context.node_config).most(SECONDS))
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return call_next(message, context)
    finally:
        faulthandler.cancel_dump_traceback_later()


log = logging.getLogger("florets")

_PACKAGES = {"pandas": "pandas", "sklearn": "scikit-learn", "scipy": "scipy", "PIL": "pillow"}
"""Packages that a node needs for some runs alone, by the name that is imported."""

_OURS = __name__.partition(".")[0]


@contextmanager
def own_texts_alone(message: Message, context: Context) -> Iterator[None]:
    """Replace an unexpected error, on a real node, by a RuntimeError: its text may quote data.

    A ValueError that the project or allowed code has raised is passed on, unless the node adds noise to what it
    sends.
    """
    try:
        yield
    except Exception as error:  # whatever it is, its text must not reach the server unseen
        if _is_written_here(error, context):
            if is_simulated(context) or isinstance(error, Refused) or kinds.PRIVACY not in config_of(message.content):
                raise
            raise ValueError(
                "this node cannot answer; the reason may depend on its data and is only in its log (florets node log)"
            ) from error
        if is_simulated(context):
            # A bare KeyError or NotImplementedError does not help the author of the code.
            if place := raised_in(error, in_own_code=bool(str(error).strip())):
                error.args = (f"{error} ({place})" if str(error).strip() else place,)
            raise
        if isinstance(error, ModuleNotFoundError) and (lacks := _PACKAGES.get(str(error.name).partition(".")[0])):
            raise RuntimeError(f"this node lacks {lacks}, which the run needs; pip install {lacks} there") from error
        raise RuntimeError(
            f"{type(error).__name__}: unexpected error; its text may quote this node's data and is only in the "
            "node's log"
        ) from error


def _is_written_here(error: Exception, context: Context) -> bool:
    """Return whether an error is a ValueError that a `raise` of the project, or of allowed code, has raised.

    The innermost frame's module does not suffice: functions in C, such as `float`, have no frame, so that their
    errors come from the line that called them.
    """
    trace = error.__traceback__
    # What a user's own function said stands in ours.
    if not isinstance(error, ValueError) or isinstance(error, OwnCodeFailed) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    if dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] != "RAISE_VARARGS":
        return False
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == _OURS or consent_of(context).allows(module)


# One thread per process: clients run side by side, and gradients differ in bits between one thread and two.
torch.set_num_threads(1)
one_thread_for_good()
import_as_caller_did()

Lifespan = Callable[[Context], Iterator[None]]

_HANDLERS: dict[str, Callable[[Client], RecordDict]] = {
    kinds.HELLO: hello,
    kinds.DESCRIBE: describe,
    kinds.TRAIN: train,
    kinds.TRAIN_SELECT: train_select,
    kinds.TRAIN_ESTIMATE: estimate,
    kinds.EVALUATE: evaluate,
    kinds.LOSSES: losses,
    kinds.SECURE_KEYS: keys,
    kinds.SECURE_SHARES: shares,
    kinds.SECURE_UNMASK: unmask,
    **{f"{category}.{kinds.CUSTOM}": custom for category in ("train", "evaluate", "query")},
}
"""Handlers that every algorithm may ask for; those of a single algorithm are with it, see `custom`."""


def _refuse_uncovered(client: Client, kind: str) -> None:
    """Raise ValueError for a message whose answer would hold what has no noise of this client's."""
    if kind not in ANSWERED and not (kind == kinds.EVALUATE and client.is_simulated):
        raise ValueError(f"{kind}: an answer would not be noised, and the run is one whose clients add noise")


def _answering(handle: Callable[[Client], RecordDict]) -> Callable[[Message, Context], Message]:
    """Return a handler as Flower calls it; its reply tells what it cost."""

    def answer(message: Message, context: Context) -> Message:
        start, kind = perf_counter(), message.metadata.message_type
        is_masked, prepared = kind == kinds.TRAIN and kinds.MASKING in message.content, 0.0
        is_noised = False

        def reply(client: Client) -> RecordDict:
            nonlocal prepared, is_noised
            prepared, is_noised = client.prepared.seconds, kinds.PRIVACY in client.config
            session.put_back()
            if is_noised:
                _refuse_uncovered(client, kind)
            refuse_clear(client, kind)
            if is_masked:
                return masked(client, handle)
            return handle(client)

        with counted() as effort, own_texts_alone(message, context):
            content = answered(reply, message, context, partial(_is_written_here, context=context))
        if not is_masked:
            # Of a masked one passes through the data would tell how many there are, and of a noised one.
            cost = Work(perf_counter() - start + prepared, effort.gradients, effort.losses)
            cost = Work() if is_noised else cost
            # Flower's own strategies demand one record of metrics in a reply: this one is of another kind.
            filled(content, {kinds.WORK: filled(ConfigRecord(), vars(cost))})
        return Message(content, reply_to=message)

    return answer


_INSTEAD = {
    **dict.fromkeys(("LocalDpMod", "fixedclipping_mod", "adaptiveclipping_mod"), "privacy.kind=local or central"),
    **dict.fromkeys(("secagg_mod", "secaggplus_mod"), "secure_aggregation=true"),
}
"""Mods of Flower that fit only its own strategies, and the key of a run that does the same here."""


def refuse_mods(mods: Sequence[Mod]) -> None:
    """Raise ValueError for a mod of Flower's that would not protect all of the messages sent here."""
    for mod in mods:
        own = mod if isinstance(mod, type | FunctionType) else type(mod)
        if (instead := _INSTEAD.get(own.__name__)) and own.__module__.startswith("flwr."):
            raise ValueError(
                f"{own.__name__}: protects only the one message a round of Flower's own strategies; here messages "
                f"are of many kinds. Leave it out, and run with {instead}"
            )


_ANSWERS = {kind: _answering(handle) for kind, handle in _HANDLERS.items()}


def opened(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer a parcel: each of its messages by itself, as `app` would answer it on a node of its own."""
    config = context.node_config
    if PARTITION_ID not in config:
        raise ValueError("clients_per_node: this node has data of its own and hosts one client")
    items, num_clients = unpack(message.content)
    Limits(config).hold(COLUMNS, "clients on this node", len(items))
    if is_simulated(context):
        # Processes of Flower's simulation are none of its tasks, which alone may build messages.
        become_task(context.run_id, context.node_id, 0)
    begun = monotonic()
    replies: list[RecordDict | str] = []
    for item in items:
        left = message.metadata.ttl - (monotonic() - begun)
        try:
            inner = Message(item.content, context.node_id, item.kind, ttl=left, group_id=message.metadata.group_id)
            own = {PARTITION_ID: item.client, **({NUM_PARTITIONS: num_clients} if NUM_PARTITIONS in config else {})}
            reply = app(inner, with_node_config(context, {**config, **own}))
            replies.append(reply.error.reason or "" if reply.has_error() else reply.content)
        except Exception as error:  # as in every Flower runtime, whatever a client raises is its reply alone
            log.debug("client %d of node %d failed", item.client, context.node_id, exc_info=True)
            replies.append(f"{type(error).__name__}: {error}")
    return Message(pack_replies(replies), reply_to=message)


class FloretsApp(ClientApp):
    """Flower's ClientApp with the handlers above, found by one look-up where nothing has to be around them."""

    def __init__(self, mods: Sequence[Mod] = ()) -> None:
        refuse_mods(mods)
        super().__init__(mods=[within_deadline, *mods])
        self.is_bare = not mods
        """Whether a handler sees each message as it was sent, and its reply is sent as it is."""
        for kind, answer in _ANSWERS.items():
            category, _, action = kind.partition(".")
            getattr(self, category)(*filter(None, [action]))(answer)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; see ClientApp."""
        if message.metadata.message_type == kinds.PARCEL:
            return opened(self, message, context)
        answer = _ANSWERS.get(message.metadata.message_type)
        if not is_simulated(context):
            context = with_folders_config(context)
        if answer is None:
            return self._registered(message, context)
        if not self.is_bare or has_process_of_its_own():
            return super().__call__(message, context)
        return answer(message, context)

    def _registered(self, message: Message, context: Context) -> Message:
        """Answer by a handler that was registered with a decorator, under the owner's policy and log like others."""
        replies = []

        def handle(_: Client) -> RecordDict:
            replies.append(super(FloretsApp, self).__call__(message, context))
            return replies[0].content

        answered(handle, message, context, lambda _: False)
        return replies[0]

    def lifespan(self) -> Callable[[Lifespan], Lifespan]:
        """Register what runs before and after each message; see ClientApp."""
        self.is_bare = False
        return super().lifespan()


app = FloretsApp()
