"""`train.adapted`: a client trains a model for the loss that it has after one gradient step, for Per-FedAvg."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import packed, reply
from florets.client_app.training import augmentation, sample_weights, trained
from florets.task.randomness import Purpose
from florets.task.training.adaptation import Adaptation
from florets.task.training.objective import Objective
from florets.task.wire import kinds


def train_adapted(client: Client) -> RecordDict:
    """Return the model after local training, and the mean loss after the adaptations.

    Source: Fallah et al. 2020 (Per-FedAvg), Alg. 1: the clients' part.
    """
    weights, augment = sample_weights(client), augmentation(client)
    term = Adaptation(
        client.number(kinds.ADAPTATION_STEP),
        client.data.x_train,
        client.data.y_train,
        weights,
        client.loss,
        client.training.batch_size,
        client.random(Purpose.ADAPTATION),
        exact=client.config.get(kinds.EXACT_HESSIAN) is True,
        augment=augment,
        precision=client.training.precision,
    )
    arrays, loss = trained(client, client.states()[0], objective=Objective((term,), weights, augment=augment))
    return reply(packed(arrays), {kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: client.num_examples})
