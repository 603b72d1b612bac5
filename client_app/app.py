"""ClientApp: introduces the client, evaluates models on its data, trains one of them."""

from typing import TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from client_app.session import Session, State, client_key, device_of, num_partitions
from task.fingerprint import project_fingerprint
from task.losses import evaluate as test
from task.losses import loss_vector
from task.randomness import Purpose, client_number, generator
from task.training import TrainSettings, gradient, local_update
from task.wire import is_stable, kinds

# One thread per process: clients run side by side, and gradients differ in bits between one thread and two.
torch.set_num_threads(1)

app = ClientApp()
session = Session()

Loss = TypeVar("Loss", float, NDArray[np.float64])


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say who this client is and what it has; loads its data, so that a bad data folder shows before training."""
    config = _config(message)
    spec = session.task(config, context).spec
    numbers = {kinds.NUM_EXAMPLES: 1, kinds.CLUSTER: kinds.NO_CLUSTER, kinds.NUM_PARTITIONS: num_partitions(context)}
    # Of another number of simulated nodes than clients, some would have no data: the server refuses all of them.
    if num_partitions(context) in (0, spec.num_clients):
        data = session.client(config, context)
        numbers[kinds.NUM_EXAMPLES] = len(data.x_train)
        # Truth is for simulations: a real node tells it only where its owner wrote it into the node config.
        numbers[kinds.CLUSTER] = _stated_cluster(context)
        if num_partitions(context) and spec.num_clusters:
            numbers[kinds.CLUSTER] = data.cluster
    metrics = MetricRecord(dict(numbers))
    texts = ConfigRecord(
        {
            kinds.CLIENT_KEY: client_key(context),
            kinds.DEVICE: str(device_of(config, context)),
            kinds.FINGERPRINT: project_fingerprint(),
        }
    )
    return Message(RecordDict({kinds.METRICS: metrics, kinds.CONFIG: texts}), reply_to=message)


@app.evaluate("losses")
def losses(message: Message, context: Context) -> Message:
    """Return the mean loss of each model on the whole training set, and whether this client is stable.

    Source: CLoVE Alg. 1, l. 7 and 8; stability: section 3, "Checking for cluster stability".
    """
    config = _config(message)
    history = config.get(kinds.HISTORY, [])
    rounds = int(_number(config, kinds.STABILITY_ROUNDS, 0))
    metrics = MetricRecord(
        {
            kinds.MODEL_LOSSES: _losses(message, context).tolist(),
            kinds.NUM_EXAMPLES: len(session.client(config, context).x_train),
            kinds.STABLE: int(is_stable(history if isinstance(history, list) else [], rounds)),
        }
    )
    return Message(RecordDict({kinds.METRICS: metrics}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came and return it, or its gradient."""
    state = session.states(_arrays(message))[0]
    arrays, metrics = _update(state, _config(message), context)
    return Message(RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics}), reply_to=message)


@app.train("select")
def train_select(message: Message, context: Context) -> Message:
    """Choose the model with the lowest loss on the training set, then do as `train`.

    Source: IFCA Alg. 1, l. 7 and 8.
    """
    vector = _losses(message, context)
    chosen = int(np.argmin(vector))
    arrays, metrics = _update(session.states(_arrays(message))[chosen], _config(message), context)
    metrics[kinds.CHOSEN_MODEL] = chosen
    metrics[kinds.MODEL_LOSSES] = vector.tolist()
    return Message(RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model that came on this client's test set."""
    config = _config(message)
    data, module = session.client(config, context), session.module(config, context)
    module.load_state_dict(session.states(_arrays(message))[0])
    loss, accuracy = test(module, data.x_test, data.y_test, session.task(config, context).spec.loss)
    metrics = MetricRecord({kinds.EVAL_LOSS: _reported(loss), kinds.NUM_EXAMPLES: len(data.x_test)})
    if accuracy is not None:
        metrics[kinds.EVAL_ACCURACY] = accuracy
    return Message(RecordDict({kinds.METRICS: metrics}), reply_to=message)


def _losses(message: Message, context: Context) -> NDArray[np.float64]:
    config = _config(message)
    data, module = session.client(config, context), session.module(config, context)
    states = session.states(_arrays(message))
    loss = session.task(config, context).spec.loss
    return _reported(loss_vector(module, states, data.x_train, data.y_train, loss))


def _reported(losses: Loss) -> Loss:
    """Return losses as they may be sent: a model that diverged is the worst there is, and nobody's choice."""
    finite = np.nan_to_num(losses, nan=kinds.DIVERGED, posinf=kinds.DIVERGED)
    clipped = np.clip(finite, 0.0, kinds.DIVERGED)
    return clipped if isinstance(losses, np.ndarray) else float(clipped)


def _update(state: State, config: ConfigRecord, context: Context) -> tuple[ArrayRecord, MetricRecord]:
    task, data = session.task(config, context), session.client(config, context)
    module = session.module(config, context)
    module.load_state_dict(state)
    x, y, loss = data.x_train, data.y_train, task.spec.loss
    if config.get(kinds.REPLY, kinds.REPLY_MODEL) == kinds.REPLY_GRADIENT:
        batch = int(_number(config, kinds.GRADIENT_BATCH, 0))
        rng = _generator(config, context, Purpose.GRADIENT_BATCH)
        arrays = gradient(module, x, y, loss, batch or None, rng)
        mean = float(loss_vector(module, [state], x, y, loss)[0])
        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    else:
        mean = local_update(
            module, x, y, loss, _settings(config), _generator(config, context, Purpose.LOCAL_TRAINING)
        )
        record = ArrayRecord(module.state_dict())
    return record, MetricRecord({kinds.TRAIN_LOSS: mean, kinds.NUM_EXAMPLES: len(x)})


def _settings(config: ConfigRecord) -> TrainSettings:
    return TrainSettings(
        learning_rate=_number(config, kinds.LEARNING_RATE),
        local_epochs=int(_number(config, kinds.LOCAL_EPOCHS)),
        batch_size=int(_number(config, kinds.BATCH_SIZE)),
        optimizer="sgd" if config.get(kinds.OPTIMIZER) == "sgd" else "adam",
        momentum=_number(config, kinds.MOMENTUM, 0.0),
        weight_decay=_number(config, kinds.WEIGHT_DECAY, 0.0),
        proximal_mu=_number(config, kinds.PROXIMAL_MU, 0.0),
    )


def _generator(config: ConfigRecord, context: Context, purpose: Purpose) -> np.random.Generator:
    # The server knows the client's registered name, the node may not; other strategies than ours send no number.
    number = int(_number(config, kinds.CLIENT_NUMBER, client_number(client_key(context))))
    seed, server_round = int(_number(config, kinds.SEED, 0)), int(_number(config, kinds.SERVER_ROUND, 0))
    return generator(seed, server_round, purpose, number)


def _number(config: ConfigRecord, key: str, default: float | None = None) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the message's config has {key}={value!r}, not a number")
    return value


def _stated_cluster(context: Context) -> int:
    return int(context.node_config.get(kinds.CLUSTER, kinds.NO_CLUSTER))


def _config(message: Message) -> ConfigRecord:
    config = message.content.get(kinds.CONFIG)
    if not isinstance(config, ConfigRecord):
        raise ValueError(f"the message has no {kinds.CONFIG!r}")
    return config


def _arrays(message: Message) -> ArrayRecord:
    arrays = message.content.get(kinds.ARRAYS)
    if not isinstance(arrays, ArrayRecord):
        raise ValueError(f"the message has no {kinds.ARRAYS!r}")
    return arrays
