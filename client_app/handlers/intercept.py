"""`query.intercept`: this client's estimate of its own offsets of a model's outputs, for random intercepts."""

import numpy as np
import torch
from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.client_app.training import sample_weights
from florets.task.statistics.intercepts import class_offsets, value_offset
from florets.task.training.losses import evaluated
from florets.task.training.modules import load
from florets.task.wire import kinds
from florets.task.wire.intercept import offset_basis
from florets.task.wire.sums import MIN_RECORDS

_TRIED, _TOLERANCE = 8, 1e-3


def intercept(client: Client) -> RecordDict:
    """Estimate the offsets on the training data, the model held fixed; return them and their variances.

    Of a model that diverged, of fewer than `MIN_RECORDS` records, and where the node's owner keeps statistics back,
    they are 0 with the largest variance: for the server that is no estimate, and the client has the common intercept.

    Raises
    ------
    ValueError
        If the task has neither classes nor values, or the layer's bias does not shift the model's outputs.
    """
    if client.loss == "reconstruction":
        raise ValueError("a reconstruction has no intercept; use a task with classes or values")
    state, data, module = client.near(client.states()[0]), client.data, client.module
    (layer,) = client.names(kinds.HEAD)
    load(module, {**state, f"{layer}.bias": state[f"{layer}.bias"] + 1})
    tried = evaluated(module, data.x_train[:_TRIED], data.y_train[:_TRIED], client.loss).outputs
    load(module, state)
    outputs = evaluated(module, data.x_train, data.y_train, client.loss).outputs
    assert outputs is not None
    assert tried is not None
    num_offsets = offset_basis(outputs.shape[1]).shape[1]
    offsets, variances = np.zeros(num_offsets), np.full(num_offsets, kinds.DIVERGED)
    is_estimated = client.shares_statistics and client.num_examples >= MIN_RECORDS
    if is_estimated and np.isfinite(outputs).all() and np.isfinite(tried).all():
        plain = outputs[:_TRIED]
        if np.abs(tried - plain - 1).max() > _TOLERANCE * (1 + np.abs(plain).max()):
            raise ValueError(
                f"the bias of layer {layer!r} does not shift the model's outputs: it is not the last one"
            )
        targets = data.y_train.cpu()
        if client.loss == "cross_entropy":
            # A model that was trained with weights by class has other intercepts than the classes' shares.
            weights = sample_weights(client)
            worth = None if weights is None else weights.cpu().numpy().astype(np.float64)
            offsets, variances = class_offsets(outputs.astype(np.float64), targets.numpy(), worth)
        else:
            residuals = targets.to(torch.float64).numpy() - outputs[:, 0]
            offsets, variances = value_offset(residuals)
    return reply(
        None,
        {
            kinds.OFFSETS: np.clip(offsets, -kinds.DIVERGED, kinds.DIVERGED).tolist(),
            kinds.VARIANCES: np.minimum(variances, kinds.DIVERGED).tolist(),
            kinds.NUM_EXAMPLES: client.num_examples,
        },
    )
