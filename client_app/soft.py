"""Handler of soft labels: every client trains all K models, each as far as it seems to belong to it."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from florets.client_app.incoming import arrays_of, config_of, number
from florets.client_app.local_work import model_losses, reported, session, trained
from florets.task.wire import kinds
from florets.task.wire.layout import write_array
from florets.task.wire.soft import NEGLIGIBLE


def train_soft(message: Message, context: Context) -> Message:
    """Train model l on the loss times this client's weight of l, for every l, and return all.

    Source: mixed regression, Phase 2, l. 6 to 8, with weights in place of the hard label (which minimises (6)).
    """
    config = config_of(message)
    losses = model_losses(message, context)
    num_examples = len(session.client(config, context).x_train)
    weights = memberships(losses, num_examples, number(config, kinds.TEMPERATURE))
    models: dict[str, Array] = {}
    total = 0.0
    for index, state in enumerate(session.states(arrays_of(message))):
        update = {name: value.numpy() for name, value in state.items()}
        loss = float(losses[index])
        if weights[index] > NEGLIGIBLE:
            update, loss = trained(state, config, context, float(weights[index]))
        # A model that diverged has no weight: 0 times infinity would be no number.
        total += float(weights[index]) * loss if weights[index] > 0 else 0.0
        # Written at once: the arrays may be the memory of the one module that the next model is loaded into.
        models.update({f"{index}/{name}": write_array(values) for name, values in update.items()})
    metrics = MetricRecord(
        {
            kinds.TRAIN_LOSS: reported(total),
            kinds.NUM_EXAMPLES: num_examples,
            kinds.MEMBERSHIPS: weights.tolist(),
            kinds.MODEL_LOSSES: losses.tolist(),
        }
    )
    return Message(RecordDict({kinds.ARRAYS: ArrayRecord(models), kinds.METRICS: metrics}), reply_to=message)


def memberships(losses: NDArray[np.float64], num_examples: int, temperature: float) -> NDArray[np.float64]:
    """Return weights (K,) proportional to exp(-n L / temperature), summing to 1.

    With the likelihood's own temperature (2 sigma^2 for squared error under noise of variance sigma^2) they are the
    posterior of the label; the smaller it is, the harder they are.

    Raises
    ------
    ValueError
        If the temperature is not above 0.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be above 0.")
    scores = num_examples * (losses - losses.min()) / temperature
    weights: NDArray[np.float64] = np.exp(-scores)
    weights /= weights.sum()
    return weights
