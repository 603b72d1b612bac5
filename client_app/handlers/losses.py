"""`evaluate.losses`: the loss of each model on this client's training data, the part that is held out, or a batch."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.session import session
from florets.client_app.training import model_losses
from florets.task.wire.codec import pack
from florets.task.wire.replies import Losses


def losses(client: Client) -> RecordDict:
    """Return the mean loss of each model, see `model_losses`, and whether this process has kept the models.

    Source: CLoVE Alg. 1, l. 7 and 8.
    """
    return pack(
        Losses,
        losses=model_losses(client),
        num_examples=client.num_examples,
        kept=session.keep(client.config, client.arrays(), client.context),
    )
