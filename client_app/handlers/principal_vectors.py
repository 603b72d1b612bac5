"""`query.principal_vectors`: principal vectors of this client's inputs, for PACFL."""

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.task.statistics.principal_vectors import principal_directions
from florets.task.wire import kinds


def principal_vectors(client: Client) -> RecordDict:
    """Return the first p principal vectors of each class's inputs, or of all inputs, and the place of each.

    Source: Vahidian et al. 2023, the client's truncated singular value decomposition.
    """
    inputs = client.data.x_train.flatten(1).cpu().numpy().astype(np.float64)
    labels = client.data.y_train.cpu().numpy()
    if client.config.get(kinds.VECTORS_OF) != "class" or client.loss != "cross_entropy":
        labels = np.zeros(len(inputs), dtype=np.int64)
    vectors, places = principal_directions(inputs, labels, int(client.number(kinds.VECTORS)))
    record = ArrayRecord({kinds.PRINCIPAL: Array(vectors.astype(np.float32))})
    return reply(record, {kinds.PLACES: places.tolist()})
