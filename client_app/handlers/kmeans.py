"""`query.kmeans`: centres of this client's own data, for k-FED."""

from flwr.app import Array, ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.task.randomness import Purpose
from florets.task.statistics.kmeans import feature_rows, local_centres
from florets.task.wire import kinds


def kmeans(client: Client) -> RecordDict:
    """Return at most k' centres of the training set, and how many samples belong to each.

    Source: Dennis et al. 2021, Alg. 1.
    """
    features = str(client.config.get(kinds.FEATURES, "inputs"))
    rows = feature_rows(client.data.x_train, client.data.y_train, client.task.num_outputs, features)
    most = int(client.number(kinds.LOCAL_CLUSTERS, 1))
    method = str(client.config.get(kinds.LOCAL_METHOD, "kmeans"))
    centres, sizes = local_centres(rows, most, client.random(Purpose.LOCAL_KMEANS), method)
    return reply(ArrayRecord({kinds.CENTRES: Array(centres)}), {kinds.SIZES: sizes.tolist()})
