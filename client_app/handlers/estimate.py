"""`train.estimate`: this client's own estimate of its model, for one-shot clustering."""

from flwr.app import ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.local_training import update
from florets.client_app.outgoing import reply, reported
from florets.task.randomness import Purpose
from florets.task.statistics.least_squares import fit_linear_model
from florets.task.training.losses import mean_loss
from florets.task.wire import kinds


def estimate(client: Client) -> RecordDict:
    """Return the model that fits this client's data, trained from the one that came or in closed form.

    Raises
    ------
    ValueError
        If least squares are asked for of a model that is no linear regression.
    """
    if client.config.get(kinds.ESTIMATE) != kinds.ESTIMATE_LEAST_SQUARES:
        return reply(*update(client, client.states()[0], Purpose.ESTIMATE))
    data, module = client.data, client.module
    fit_linear_model(module, data.x_train, data.y_train)
    loss = mean_loss(module, data.x_train, data.y_train, client.loss)
    metrics = {kinds.TRAIN_LOSS: reported(loss), kinds.NUM_EXAMPLES: client.num_examples}
    return reply(ArrayRecord(module.state_dict()), metrics)
