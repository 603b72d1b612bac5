"""What several handlers do with models and this client's data: take losses, train."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from numpy.typing import NDArray
from torch.nn import Module

from florets.client_app.incoming import arrays_of, client_generator, config_of, number, train_settings
from florets.client_app.session import Session, State
from florets.task.linear_steps import (
    LinearModels,
    LinearNames,
    flat,
    linear_losses,
    linear_test,
    linear_update,
    takes_full_steps,
)
from florets.task.losses import evaluate, loss_vector
from florets.task.proximal import exact_proximal
from florets.task.randomness import Purpose
from florets.task.task import ClientData
from florets.task.training import TrainSettings, gradient, local_update
from florets.task.wire import kinds
from florets.task.wire.compression import quantise
from florets.task.wire.layout import write_array

session = Session()
"""The process's caches; one process may serve many clients in turn."""

Loss = TypeVar("Loss", float, NDArray[np.float64])


def model_losses(message: Message, context: Context) -> NDArray[np.float64]:
    """Return the mean loss of each of the message's models on the whole training set."""
    config, record = config_of(message), arrays_of(message)
    data, loss = session.client(config, context), session.task(config, context).spec.loss
    if names := session.linear(config, context):
        models = session.linear_models(record, names)
        return reported(linear_losses(models, *flat(data.x_train, data.y_train), loss))
    module, states = session.module(config, context), session.states(record)
    return reported(loss_vector(module, states, data.x_train, data.y_train, loss))


def test_result(message: Message, context: Context) -> tuple[float, float | None, int]:
    """Return mean loss, accuracy (None without classes) and number of samples of this client's test set."""
    config, record = config_of(message), arrays_of(message)
    data, loss = session.client(config, context), session.task(config, context).spec.loss
    x, y = data.x_test, data.y_test
    if names := session.linear(config, context):
        return *linear_test(session.linear_models(record, names), *flat(x, y), loss), len(x)
    module = session.module(config, context)
    module.load_state_dict(session.states(record)[0])
    return *evaluate(module, x, y, loss), len(x)


def reported(losses: Loss) -> Loss:
    """Return losses as they may be sent: a model that diverged is the worst there is, and nobody's choice."""
    # Written so that a NaN, of which no comparison holds, is the worst as well.
    clipped = np.where(np.less(losses, kinds.DIVERGED), np.maximum(losses, 0.0), kinds.DIVERGED)
    return clipped if isinstance(losses, np.ndarray) else float(clipped)


def update(
    state: State, config: ConfigRecord, context: Context, purpose: Purpose = Purpose.LOCAL_TRAINING
) -> tuple[ArrayRecord, MetricRecord]:
    """Train a model, or take its gradient; return what the server asked for, and the loss and count beside it.

    `purpose` names the draws of training.
    """
    arrays, mean = work(state, config, context, purpose)
    examples = len(session.client(config, context).x_train)
    return packed(arrays), MetricRecord({kinds.TRAIN_LOSS: mean, kinds.NUM_EXAMPLES: examples})


def work(
    state: State, config: ConfigRecord, context: Context, purpose: Purpose = Purpose.LOCAL_TRAINING
) -> tuple[dict[str, NDArray[Any]], float]:
    """Return the arrays that the server asked for, a gradient or the model after local training, and the mean loss.

    The arrays may share the process's module: use them before another model is loaded.
    """
    task, data = session.task(config, context), session.client(config, context)
    x, y, loss = data.x_train, data.y_train, task.spec.loss
    if sends_gradient(config):
        module = session.module(config, context)
        module.load_state_dict(state)
        batch = int(number(config, kinds.GRADIENT_BATCH, 0))
        rng = client_generator(config, context, Purpose.GRADIENT_BATCH)
        arrays, mean = gradient(module, x, y, loss, batch or None, rng)
    else:
        arrays, mean = trained(state, config, context, purpose=purpose)
    return _quantised(arrays, state, config), mean


def trained(
    state: State,
    config: ConfigRecord,
    context: Context,
    share: float = 1.0,
    purpose: Purpose = Purpose.LOCAL_TRAINING,
) -> tuple[dict[str, NDArray[Any]], float]:
    """Train a model on this client's loss times `share`; return its arrays and the mean loss, without that factor.

    The arrays may be the module's own memory, and good only until the next model is loaded.
    """
    data, loss = session.client(config, context), session.task(config, context).spec.loss
    module, settings = session.module(config, context), train_settings(config)
    # The exact solution knows no weight decay: with it, steps are taken.
    if number(config, kinds.EXACT_PROXIMAL, 0) and settings.proximal_mu > 0 and settings.weight_decay == 0:
        module.load_state_dict(state)
        exact = exact_proximal(module, data.x_train, data.y_train, loss, settings.proximal_mu, share)
        if exact is not None:
            return _values(module), exact
    if share != 1.0:
        # Plain steps on a part of the loss are smaller steps on all of it; the penalties keep their own size.
        settings = replace(
            settings,
            learning_rate=settings.learning_rate * share,
            proximal_mu=settings.proximal_mu / share,
            weight_decay=settings.weight_decay / share,
        )
    names = session.linear(config, context) if takes_full_steps(settings, len(data.x_train)) else None
    if names is not None:
        return _full_steps(state, names, data, loss, settings)
    module.load_state_dict(state)
    rng = client_generator(config, context, purpose)
    mean = local_update(module, data.x_train, data.y_train, loss, settings, rng)
    return _values(module), mean


def sends_gradient(config: ConfigRecord) -> bool:
    """Return whether the server asks for a gradient, not for a trained model."""
    return config.get(kinds.REPLY, kinds.REPLY_MODEL) == kinds.REPLY_GRADIENT


def changes(arrays: Mapping[str, NDArray[Any]], state: State) -> dict[str, NDArray[Any]]:
    """Return what training changed in a model that began as `state`; counters and flags stay as they are."""
    # Booleans cannot be subtracted, and no difference of counters is ever used.
    return {name: array - state[name].numpy() if array.dtype.kind == "f" else array for name, array in arrays.items()}


def packed(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return arrays as they are sent."""
    return ArrayRecord({name: write_array(values) for name, values in arrays.items()})


def _quantised(arrays: dict[str, NDArray[Any]], state: State, config: ConfigRecord) -> dict[str, NDArray[Any]]:
    """Return gradients, or what training changed in a model, with the decimals that the server asks for."""
    how, digits = str(config.get(kinds.QUANTISE, "none")), int(number(config, kinds.QUANTISE_DIGITS, 0))
    if how == "none":
        return arrays
    if sends_gradient(config):
        return {name: quantise(array, how, digits) for name, array in arrays.items()}
    return {
        name: state[name].numpy() + quantise(change, how, digits) if change.dtype.kind == "f" else change
        for name, change in changes(arrays, state).items()
    }


def _values(module: Module) -> dict[str, NDArray[Any]]:
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def _full_steps(
    state: State, names: LinearNames, data: ClientData, loss: str, settings: TrainSettings
) -> tuple[dict[str, NDArray[Any]], float]:
    models = LinearModels.of([{name: value.numpy() for name, value in state.items()}], names)
    weight, bias, mean = linear_update(models, 0, *flat(data.x_train, data.y_train), loss, settings)
    result = {names.weight: weight}
    if names.bias is not None and bias is not None:
        result[names.bias] = bias
    return result, mean
