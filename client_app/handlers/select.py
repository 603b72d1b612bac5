"""`train.select`: local training of the model that fits this client best."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.client_app.training import model_losses, update
from florets.task.wire import kinds


def train_select(client: Client) -> RecordDict:
    """Choose the model with the lowest loss, see `model_losses`, then do as `train`.

    Source: IFCA Alg. 1, l. 7 and 8.
    """
    losses = model_losses(client)
    chosen = int(losses.argmin())
    arrays, metrics = update(client, client.states()[chosen])
    return reply(arrays, {**metrics, kinds.CHOSEN_MODEL: chosen, kinds.MODEL_LOSSES: losses.tolist()})
