"""The ClientApp: one handler for each message kind."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from florets.client_app.client import Client, client_of
from florets.client_app.deadline import has_process_of_its_own, within_deadline
from florets.client_app.error_texts import own_texts_alone
from florets.client_app.handlers.custom import custom
from florets.client_app.handlers.estimate import estimate
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.handlers.hello import describe, hello
from florets.client_app.handlers.losses import losses
from florets.client_app.handlers.train import train, train_select
from florets.task.callers_folder import import_as_caller_did
from florets.task.threads import one_thread_for_good
from florets.task.training.effort import counted
from florets.task.wire import kinds
from florets.task.wire.messages import reply_message
from florets.task.wire.records import put
from florets.task.wire.work import pack_work
from florets.task.work import Work

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
    **{f"{category}.{kinds.CUSTOM}": custom for category in ("train", "evaluate", "query")},
}
"""What every algorithm may ask; what one of them alone asks for its `client.py` answers, see `custom`."""


def _answering(handle: Callable[[Client], RecordDict]) -> Callable[[Message, Context], Message]:
    """Return a handler as Flower calls it; its reply tells what it cost."""

    def answer(message: Message, context: Context) -> Message:
        start = perf_counter()
        with counted() as effort, own_texts_alone(context):
            client = client_of(message, context)
            content = handle(client)
        seconds = perf_counter() - start + client.prepared.seconds
        put(content, {kinds.WORK: pack_work(Work(seconds, effort.gradients, effort.losses))})
        return reply_message(content, message)

    return answer


_ANSWERS = {kind: _answering(handle) for kind, handle in _HANDLERS.items()}


class FloretsApp(ClientApp):
    """Flower's ClientApp with the handlers above, which it finds by one look-up where nothing has to be around them.

    Flower's own way to a handler takes longer than most of them take to answer one of a block's messages. It is taken
    in a node's process that is to be held to the deadline, for a message that has no handler here, and where the app
    was given mods or a lifespan.

    Parameters
    ----------
    mods
        Flower's modifiers, called around each handler, the first outermost.
    """

    def __init__(self, mods: Sequence[Mod] = ()) -> None:
        super().__init__(mods=[within_deadline, *mods])
        self.is_bare = not mods
        """Whether a handler sees each message as it was sent, and its reply is sent as it is."""
        for kind, answer in _ANSWERS.items():
            category, _, action = kind.partition(".")
            getattr(self, category)(*filter(None, [action]))(answer)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; see ClientApp."""
        answer = _ANSWERS.get(message.metadata.message_type)
        if answer is None or not self.is_bare or has_process_of_its_own():
            return super().__call__(message, context)
        return answer(message, context)

    def lifespan(self) -> Callable[[Lifespan], Lifespan]:
        """Register what runs before and after each message; see ClientApp."""
        self.is_bare = False
        return super().lifespan()


app = FloretsApp()
