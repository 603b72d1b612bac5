"""`evaluate.losses`: the loss of each model on this client's training data, the part that is held out, or a batch."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.client_app.session import session
from florets.client_app.training import model_losses
from florets.task.wire import kinds


def losses(client: Client) -> RecordDict:
    """Return the mean loss of each model, see `model_losses`, and whether this process has kept the models.

    Source: CLoVE Alg. 1, l. 7 and 8.
    """
    metrics = {
        kinds.MODEL_LOSSES: model_losses(client).tolist(),
        kinds.NUM_EXAMPLES: client.num_examples,
        kinds.KEPT: int(session.keep(client.config, client.arrays(), client.context)),
    }
    return reply(None, metrics)
