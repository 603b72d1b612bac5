"""`evaluate.losses`: the loss of each model on this client's training data."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.local_training import model_losses
from florets.client_app.outgoing import reply
from florets.task.wire import is_stable, kinds


def losses(client: Client) -> RecordDict:
    """Return the mean loss of each model on the whole training set, and whether this client is stable.

    Source: CLoVE Alg. 1, l. 7 and 8; stability: section 3, "Checking for cluster stability".
    """
    history = client.config.get(kinds.HISTORY, [])
    rounds = int(client.number(kinds.STABILITY_ROUNDS, 0))
    metrics = {
        kinds.MODEL_LOSSES: model_losses(client).tolist(),
        kinds.NUM_EXAMPLES: client.num_examples,
        kinds.STABLE: int(is_stable(history if isinstance(history, list) else [], rounds)),
    }
    return reply(None, metrics)
