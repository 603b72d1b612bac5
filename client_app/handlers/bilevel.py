"""`train.bilevel`: a client trains one model near the global one, and the global one, for StoCFL and Ditto."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.handlers.anchored import trained_near
from florets.client_app.messages import packed, reply
from florets.client_app.training import trained
from florets.task.wire import kinds


def train_bilevel(client: Client) -> RecordDict:
    """Return both models after local training, and the loss of the first.

    Both are trained in the same order of the samples: the draws are named by round, purpose and client.

    Source: Zeng et al. 2023 (StoCFL), the clients' part of the bi-level optimisation; Li et al. 2021 (Ditto), Alg. 1.
    """
    # Packed at once: the arrays may be the memory of the one module that the global model is loaded into.
    mine, metrics = trained_near(client)
    both, _ = trained(client, client.states(kinds.GLOBAL)[0])
    return reply(mine, metrics, **{kinds.GLOBAL: packed(both)})
