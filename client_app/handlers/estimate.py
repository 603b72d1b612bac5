"""`train.estimate`: this client's own estimate of its model, for one-shot clustering."""

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.client_app.client import Client
from florets.client_app.training import reported, update
from florets.task.device import one_thread
from florets.task.layers import is_of_layer
from florets.task.randomness import Purpose
from florets.task.training.losses import mean_loss
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.replies import Update


def estimate(client: Client) -> RecordDict:
    """Return the model that fits this client's data, trained from the one that came or in closed form."""
    if client.config.get(kinds.ESTIMATE) != kinds.ESTIMATE_LEAST_SQUARES:
        own = update(client, client.states()[0], Purpose.ESTIMATE)
        if layers := client.names(kinds.SENT_LAYERS):
            arrays = own["values"]
            own["values"] = {
                name: arrays[name] for name in arrays if any(is_of_layer(name, layer) for layer in layers)
            }
        return pack(Update, **own)
    data, module = client.data, client.module
    fit_linear_model(module, data.x_train, data.y_train)
    loss = mean_loss(module, data.x_train, data.y_train, client.loss)
    values = ArrayRecord(module.state_dict())
    return pack(Update, values=values, train_loss=reported(loss), num_examples=client.num_examples)


def fit_linear_model(module: Module, x: Tensor, y: Tensor) -> None:
    """Set a linear model (1, d) to the least-squares solution on inputs and targets; ValueError for another one."""
    inputs, targets = x.flatten(1).double().cpu().numpy(), y.double().cpu().numpy()
    shapes = [tuple(value.shape) for value in module.state_dict().values()]
    weight = (1, inputs.shape[1])
    remedy = "use strategy.estimate=train"
    if shapes not in ([weight], [weight, (1,)]):
        raise ValueError(f"least squares fits one linear layer of shape {weight}, not {shapes}; {remedy}.")
    solution = least_squares(inputs, targets, intercept=len(shapes) == 2)
    with torch.no_grad():
        for parameter, values in zip(module.parameters(), np.split(solution, [weight[1]]), strict=False):
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
        # The right shapes can still hide another function, such as a sigmoid at the end.
        outputs = module.eval()(x[:100]).flatten().double().cpu().numpy()
    expected = inputs[:100] @ solution[: weight[1]] + (solution[-1] if len(shapes) == 2 else 0.0)
    if not np.allclose(outputs, expected, rtol=1e-3, atol=1e-3 * (1 + np.abs(expected).max())):
        raise ValueError(f"the model is not linear in its inputs, so least squares does not fit it; {remedy}.")


def least_squares(x: NDArray[np.float64], y: NDArray[np.float64], intercept: bool) -> NDArray[np.float64]:
    """Return the shortest coefficients of the least squared error (d,), with the intercept as the last (d + 1,).

    Source: local estimates of the one-shot benchmark in the two-phase paper (mixed regression), section V.
    """
    columns = np.concatenate([x, np.ones((len(x), 1))], axis=1) if intercept else x
    with one_thread():
        return np.linalg.lstsq(columns, y, rcond=None)[0].astype(np.float64)
