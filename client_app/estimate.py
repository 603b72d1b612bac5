"""`train.estimate`: this client's own estimate of its model, for one-shot clustering."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from florets.client_app.incoming import arrays_of, config_of
from florets.client_app.local_work import reported, session, update
from florets.task.least_squares import fit_linear_model
from florets.task.losses import mean_loss
from florets.task.randomness import Purpose
from florets.task.wire import kinds


def estimate(message: Message, context: Context) -> Message:
    """Return the model that fits this client's data, trained from the one that came or in closed form.

    Raises
    ------
    ValueError
        If least squares are asked for of a model that is no linear regression.
    """
    config = config_of(message)
    state = session.states(arrays_of(message))[0]
    if config.get(kinds.ESTIMATE) == kinds.ESTIMATE_LEAST_SQUARES:
        data, module = session.client(config, context), session.module(config, context)
        fit_linear_model(module, data.x_train, data.y_train)
        loss = mean_loss(module, data.x_train, data.y_train, session.task(config, context).spec.loss)
        arrays = ArrayRecord(module.state_dict())
        metrics = MetricRecord({kinds.TRAIN_LOSS: reported(loss), kinds.NUM_EXAMPLES: len(data.x_train)})
    else:
        arrays, metrics = update(state, config, context, Purpose.ESTIMATE)
    return Message(RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics}), reply_to=message)
