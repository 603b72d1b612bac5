"""`train.anchored`: a client trains one model, held near another one, for FedSoft."""

from flwr.app import ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import Number, packed, reply
from florets.client_app.training import trained
from florets.task.training.objective import Anchored, Objective
from florets.task.wire import kinds


def train_anchored(client: Client) -> RecordDict:
    """Return the model that came after training near the other one, and its loss.

    Source: Ruan and Joe-Wong 2022 (FedSoft), the clients' proximal problem.
    """
    arrays, metrics = trained_near(client)
    return reply(arrays, metrics)


def trained_near(client: Client) -> tuple[ArrayRecord, dict[str, Number]]:
    """Train the model that came, with the term mu/2 |w - other|^2 towards the message's other one."""
    mu = client.number(kinds.GLOBAL_MU)
    objective = Objective(terms=(Anchored(mu, client.states(kinds.GLOBAL)[0]),)) if mu else None
    arrays, loss = trained(client, client.states()[0], objective=objective)
    return packed(arrays), {kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: client.num_examples}
