"""The ClientApp: one handler for each message kind."""

from collections.abc import Callable
from time import perf_counter

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.client import Client, client_of
from florets.client_app.deadline import within_deadline
from florets.client_app.handlers.adapted import train_adapted
from florets.client_app.handlers.anchored import train_anchored
from florets.client_app.handlers.bilevel import train_bilevel
from florets.client_app.handlers.closest import closest
from florets.client_app.handlers.custom import custom
from florets.client_app.handlers.descriptor import descriptor
from florets.client_app.handlers.estimate import estimate
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.handlers.folds import query_folds, train_folds
from florets.client_app.handlers.hello import hello
from florets.client_app.handlers.kmeans import kmeans
from florets.client_app.handlers.labels import labels
from florets.client_app.handlers.losses import losses
from florets.client_app.handlers.mixed import train_mixed
from florets.client_app.handlers.mixture import evaluate_mixture, train_mixture
from florets.client_app.handlers.moment_descent import moment_descent
from florets.client_app.handlers.moments import factors
from florets.client_app.handlers.principal_vectors import principal_vectors
from florets.client_app.handlers.probe import train_probe
from florets.client_app.handlers.prototypes import train_prototypes
from florets.client_app.handlers.select import train_select
from florets.client_app.handlers.soft import train_soft
from florets.client_app.handlers.split import train_split
from florets.client_app.handlers.subspace import subspace
from florets.client_app.handlers.train import train
from florets.task.callers_folder import import_as_caller_did
from florets.task.threads import one_thread_for_good
from florets.task.training.effort import counted
from florets.task.wire import kinds
from florets.task.wire.records import put
from florets.task.wire.work import pack_work
from florets.task.work import Work

# One thread per process: clients run side by side, and gradients differ in bits between one thread and two.
torch.set_num_threads(1)
one_thread_for_good()
import_as_caller_did()

app = ClientApp(mods=[within_deadline])


def answering(handle: Callable[[Client], RecordDict]) -> Callable[[Message, Context], Message]:
    """Return a handler as Flower calls it; its reply tells what it cost."""

    def answer(message: Message, context: Context) -> Message:
        start = perf_counter()
        with counted() as effort:
            client = client_of(message, context)
            content = handle(client)
        seconds = perf_counter() - start + client.prepared.seconds
        put(content, {kinds.WORK: pack_work(Work(seconds, effort.gradients, effort.losses))})
        return Message(content, reply_to=message)

    return answer


app.query("hello")(answering(hello))
app.query("kmeans")(answering(kmeans))
app.query("labels")(answering(labels))
app.query("principal_vectors")(answering(principal_vectors))
app.query("descriptor")(answering(descriptor))
app.query("subspace")(answering(subspace))
app.query("moments")(answering(factors))
app.query("folds")(answering(query_folds))
app.query(kinds.CUSTOM)(answering(custom))
app.train()(answering(train))
app.train("select")(answering(train_select))
app.train("probe")(answering(train_probe))
app.train("estimate")(answering(estimate))
app.train("folds")(answering(train_folds))
app.train("soft")(answering(train_soft))
app.train("bilevel")(answering(train_bilevel))
app.train("adapted")(answering(train_adapted))
app.train("anchored")(answering(train_anchored))
app.train("mixed")(answering(train_mixed))
app.train("prototypes")(answering(train_prototypes))
app.train("split")(answering(train_split))
app.train("mixture")(answering(train_mixture))
app.train("moment_descent")(answering(moment_descent))
app.train(kinds.CUSTOM)(answering(custom))
app.evaluate()(answering(evaluate))
app.evaluate("losses")(answering(losses))
app.evaluate("closest")(answering(closest))
app.evaluate("mixture")(answering(evaluate_mixture))
app.evaluate(kinds.CUSTOM)(answering(custom))
