"""ClientApp: introduces the client, evaluates models on its data, trains one of them."""

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.deadline import within_deadline
from florets.client_app.estimate import estimate
from florets.client_app.incoming import arrays_of, config_of, number
from florets.client_app.kmeans import kmeans
from florets.client_app.local_work import model_losses, reported, session, test_result, update
from florets.client_app.moments import factors, moment_descent, subspace
from florets.client_app.probe import train_probe
from florets.client_app.session import client_key, device_of, num_partitions
from florets.client_app.soft import train_soft
from florets.task.fingerprint import project_fingerprint
from florets.task.threads import one_thread_for_good
from florets.task.wire import is_stable, kinds

# One thread per process: clients run side by side, and gradients differ in bits between one thread and two.
torch.set_num_threads(1)
one_thread_for_good()

app = ClientApp(mods=[within_deadline])
# Handlers with a file of their own.
app.train("probe")(train_probe)
app.train("estimate")(estimate)
app.query("kmeans")(kmeans)
app.query("subspace")(subspace)
app.query("moments")(factors)
app.train("moment_descent")(moment_descent)
app.train("soft")(train_soft)


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say who this client is and what it has; loads its data, so that a bad data folder shows before training."""
    config = config_of(message)
    task, nodes = session.task(config, context), num_partitions(context)
    numbers = {kinds.NUM_EXAMPLES: 1, kinds.CLUSTER: kinds.NO_CLUSTER, kinds.NUM_PARTITIONS: nodes}
    # Of another number of simulated nodes than clients, some would have no data: the server refuses all of them.
    if nodes in (0, task.spec.num_clients) or task.is_own:
        data = session.client(config, context)
        numbers[kinds.NUM_EXAMPLES] = len(data.x_train)
        # Truth is for simulations: a real node tells it only where its owner wrote it into the node config.
        numbers[kinds.CLUSTER] = _stated_cluster(context)
        if nodes and task.spec.num_clusters and not task.is_own:
            numbers[kinds.CLUSTER] = data.cluster
    metrics = MetricRecord(dict(numbers))
    texts = ConfigRecord(
        {
            kinds.CLIENT_KEY: client_key(context),
            kinds.DEVICE: str(device_of(config, context)),
            kinds.FINGERPRINT: project_fingerprint(),
        }
    )
    if task.is_own and task.data.columns:
        texts[kinds.COLUMNS] = list(task.data.columns)
    return Message(RecordDict({kinds.METRICS: metrics, kinds.CONFIG: texts}), reply_to=message)


@app.evaluate("losses")
def losses(message: Message, context: Context) -> Message:
    """Return the mean loss of each model on the whole training set, and whether this client is stable.

    Source: CLoVE Alg. 1, l. 7 and 8; stability: section 3, "Checking for cluster stability".
    """
    config = config_of(message)
    history = config.get(kinds.HISTORY, [])
    rounds = int(number(config, kinds.STABILITY_ROUNDS, 0))
    metrics = MetricRecord(
        {
            kinds.MODEL_LOSSES: model_losses(message, context).tolist(),
            kinds.NUM_EXAMPLES: len(session.client(config, context).x_train),
            kinds.STABLE: int(is_stable(history if isinstance(history, list) else [], rounds)),
        }
    )
    return Message(RecordDict({kinds.METRICS: metrics}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came and return it, or its gradient."""
    state = session.states(arrays_of(message))[0]
    arrays, metrics = update(state, config_of(message), context)
    return Message(RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics}), reply_to=message)


@app.train("select")
def train_select(message: Message, context: Context) -> Message:
    """Choose the model with the lowest loss on the training set, then do as `train`.

    Source: IFCA Alg. 1, l. 7 and 8.
    """
    vector = model_losses(message, context)
    chosen = int(np.argmin(vector))
    arrays, metrics = update(session.states(arrays_of(message))[chosen], config_of(message), context)
    metrics[kinds.CHOSEN_MODEL] = chosen
    metrics[kinds.MODEL_LOSSES] = vector.tolist()
    return Message(RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model that came on this client's test set."""
    loss, accuracy, num_examples = test_result(message, context)
    metrics = MetricRecord({kinds.EVAL_LOSS: reported(loss), kinds.NUM_EXAMPLES: num_examples})
    if accuracy is not None:
        metrics[kinds.EVAL_ACCURACY] = accuracy
    return Message(RecordDict({kinds.METRICS: metrics}), reply_to=message)


def _stated_cluster(context: Context) -> int:
    return int(context.node_config.get(kinds.CLUSTER, kinds.NO_CLUSTER))
