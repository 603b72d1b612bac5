"""`query.subspace`: this client's term of the orthogonal iteration that finds the anchors' subspaces."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.handlers.moments import estimates, local_moments
from florets.client_app.messages import packed, reply
from florets.client_app.session import session
from florets.task.wire import kinds


def subspace(client: Client) -> RecordDict:
    """Return this client's product Y Q, or Y^T Q, for every anchor.

    Source: mixed regression, Alg. 3, l. 5 and 8.
    """
    moments, (left, right) = local_moments(client), estimates(client)
    bases = session.arrays(client.arrays(kinds.BASES))[kinds.BASES]
    terms = moments.term(left, right, bases, transposed=bool(client.number(kinds.TRANSPOSED, 0)))
    return reply(packed({kinds.TERMS: terms}), {kinds.NUM_EXAMPLES: client.num_examples})
