"""What several handlers do with models and this client's data: take losses, train."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from numpy.typing import NDArray

from client_app.incoming import arrays_of, client_generator, config_of, number, train_settings
from client_app.session import Session, State
from task.losses import loss_vector
from task.proximal import exact_proximal
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


def update(state: State, config: ConfigRecord, context: Context) -> tuple[ArrayRecord, MetricRecord]:
    """Train a model, or take its gradient; return what the server asked for, and the loss and count beside it."""
    task, data = session.task(config, context), session.client(config, context)
    x, y, loss = data.x_train, data.y_train, task.spec.loss
    if config.get(kinds.REPLY, kinds.REPLY_MODEL) == kinds.REPLY_GRADIENT:
        module = session.module(config, context)
        module.load_state_dict(state)
        batch = int(number(config, kinds.GRADIENT_BATCH, 0))
        rng = client_generator(config, context, Purpose.GRADIENT_BATCH)
        arrays, mean = gradient(module, x, y, loss, batch or None, rng)
        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    else:
        record, mean = trained(state, config, context)
    return record, MetricRecord({kinds.TRAIN_LOSS: mean, kinds.NUM_EXAMPLES: len(x)})


def trained(state: State, config: ConfigRecord, context: Context, share: float = 1.0) -> tuple[ArrayRecord, float]:
    """Train a model on this client's loss times `share`, and return it with the mean loss (without that factor)."""
    task, data = session.task(config, context), session.client(config, context)
    module, settings = session.module(config, context), train_settings(config)
    module.load_state_dict(state)
    x, y, loss = data.x_train, data.y_train, task.spec.loss
    if number(config, kinds.EXACT_PROXIMAL, 0) and settings.proximal_mu > 0:
        mean = exact_proximal(module, x, y, loss, settings.proximal_mu, share)
        if mean is not None:
            return ArrayRecord(module.state_dict()), mean
    if share != 1.0:
        # Plain steps on a part of the loss are smaller steps on all of it; the penalties keep their own size.
        settings = replace(
            settings,
            learning_rate=settings.learning_rate * share,
            proximal_mu=settings.proximal_mu / share,
            weight_decay=settings.weight_decay / share,
        )
    rng = client_generator(config, context, Purpose.LOCAL_TRAINING)
    mean = local_update(module, x, y, loss, settings, rng)
    return ArrayRecord(module.state_dict()), mean
