"""`query.moments`: the factors of this client's moment matrices at the anchors' estimates."""

from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.messages import packed, reply
from florets.client_app.session import session
from florets.task.statistics.moments import LocalMoments
from florets.task.wire import kinds


def factors(client: Client) -> RecordDict:
    """Return the factors of this client's moment matrices: with all pairs, every example's gradient at every anchor.

    Source: mixed regression, Sec. V (direct singular value decomposition).
    """
    moments, (left, right) = local_moments(client), estimates(client)
    one, two = moments.factors(left, right)
    arrays = {kinds.LEFT: one} if two is None else {kinds.LEFT: one, kinds.RIGHT: two}
    return reply(packed(arrays), {kinds.NUM_EXAMPLES: client.num_examples})


def local_moments(client: Client) -> LocalMoments:
    """Return this client's examples and the moments on them."""
    pairing: Any = client.config.get(kinds.PAIRING)
    return LocalMoments(client.module, client.data.x_train, client.data.y_train, client.loss, pairing)


def estimates(client: Client) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return the anchors' estimates, (A, R); a second time where the two examples of a pair are told other ones."""
    arrays = session.arrays(client.arrays(kinds.ESTIMATES))
    return arrays[kinds.LEFT], arrays.get(kinds.RIGHT)
