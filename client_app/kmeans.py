"""`query.kmeans`: centres of this client's own data, for k-FED."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from florets.client_app.incoming import client_generator, config_of, number
from florets.client_app.local_work import session
from florets.task.kmeans import feature_rows, local_centres
from florets.task.randomness import Purpose
from florets.task.wire import kinds


def kmeans(message: Message, context: Context) -> Message:
    """Return at most k' centres of the training set, and how many samples belong to each.

    Source: Dennis et al. 2021, Alg. 1.
    """
    config = config_of(message)
    data, task = session.client(config, context), session.task(config, context)
    features = str(config.get(kinds.FEATURES, "inputs"))
    rows = feature_rows(data.x_train, data.y_train, task.num_outputs, features)
    rng = client_generator(config, context, Purpose.LOCAL_KMEANS)
    centres, sizes = local_centres(rows, int(number(config, kinds.LOCAL_CLUSTERS, 1)), rng)
    content = RecordDict(
        {
            kinds.ARRAYS: ArrayRecord({kinds.CENTRES: Array(centres)}),
            kinds.METRICS: MetricRecord({kinds.SIZES: sizes.tolist()}),
        }
    )
    return Message(content, reply_to=message)
