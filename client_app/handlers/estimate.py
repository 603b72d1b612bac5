"""`train.estimate`: this client's own estimate of its model, for one-shot clustering."""

from flwr.app import ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply, reported
from florets.client_app.training import update
from florets.task.layers import is_of_layer
from florets.task.randomness import Purpose
from florets.task.statistics.least_squares import fit_linear_model
from florets.task.training.losses import mean_loss
from florets.task.wire import kinds


def estimate(client: Client) -> RecordDict:
    """Return the model that fits this client's data, trained from the one that came or in closed form.

    Of a trained model only the layers are returned that the message names, where it names any.

    Raises
    ------
    ValueError
        If least squares are asked for of a model that is no linear regression.
    """
    if client.config.get(kinds.ESTIMATE) != kinds.ESTIMATE_LEAST_SQUARES:
        arrays, metrics = update(client, client.states()[0], Purpose.ESTIMATE)
        if layers := client.names(kinds.SENT_LAYERS):
            named = {name: arrays[name] for name in arrays if any(is_of_layer(name, layer) for layer in layers)}
            arrays = ArrayRecord(named)
        return reply(arrays, metrics)
    data, module = client.data, client.module
    fit_linear_model(module, data.x_train, data.y_train)
    loss = mean_loss(module, data.x_train, data.y_train, client.loss)
    figures = {kinds.TRAIN_LOSS: reported(loss), kinds.NUM_EXAMPLES: client.num_examples}
    return reply(ArrayRecord(module.state_dict()), figures)
