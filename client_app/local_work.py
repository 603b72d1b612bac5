"""What several handlers do with models and this client's data: take losses, train."""

from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from numpy.typing import NDArray

from client_app.incoming import arrays_of, client_generator, config_of, number, train_settings
from client_app.session import Session, State
from task.losses import loss_vector
from task.randomness import Purpose
from task.training import gradient, local_update
from task.wire import kinds

session = Session()
"""The process's caches; one process may serve many clients in turn."""

Loss = TypeVar("Loss", float, NDArray[np.float64])


def model_losses(message: Message, context: Context) -> NDArray[np.float64]:
    """Return the mean loss of each of the message's models on the whole training set."""
    config = config_of(message)
    data, module = session.client(config, context), session.module(config, context)
    states = session.states(arrays_of(message))
    loss = session.task(config, context).spec.loss
    return reported(loss_vector(module, states, data.x_train, data.y_train, loss))


def reported(losses: Loss) -> Loss:
    """Return losses as they may be sent: a model that diverged is the worst there is, and nobody's choice."""
    finite = np.nan_to_num(losses, nan=kinds.DIVERGED, posinf=kinds.DIVERGED)
    clipped = np.clip(finite, 0.0, kinds.DIVERGED)
    return clipped if isinstance(losses, np.ndarray) else float(clipped)


def update(
    state: State, config: ConfigRecord, context: Context, purpose: Purpose = Purpose.LOCAL_TRAINING
) -> tuple[ArrayRecord, MetricRecord]:
    """Train a model, or take its gradient; return what the server asked for, and the loss and count beside it.

    `purpose` names the draws of training.
    """
    task, data = session.task(config, context), session.client(config, context)
    module = session.module(config, context)
    module.load_state_dict(state)
    x, y, loss = data.x_train, data.y_train, task.spec.loss
    if config.get(kinds.REPLY, kinds.REPLY_MODEL) == kinds.REPLY_GRADIENT:
        batch = int(number(config, kinds.GRADIENT_BATCH, 0))
        rng = client_generator(config, context, Purpose.GRADIENT_BATCH)
        arrays, mean = gradient(module, x, y, loss, batch or None, rng)
        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    else:
        rng = client_generator(config, context, purpose)
        mean = local_update(module, x, y, loss, train_settings(config), rng)
        record = ArrayRecord(module.state_dict())
    return record, MetricRecord({kinds.TRAIN_LOSS: mean, kinds.NUM_EXAMPLES: len(x)})
