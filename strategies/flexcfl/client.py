"""`query.labels`: how many samples of each class this client has, for FlexCFL's migration."""

import torch
from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.task.wire import kinds


def labels(client: Client) -> RecordDict:
    """Return the number of training samples of each class.

    Raises
    ------
    ValueError
        If the task has no classes.
    """
    if client.loss != "cross_entropy":
        raise ValueError(f"labels can be counted of a classification alone, not with task.loss={client.loss}")
    counts = torch.bincount(client.data.y_train, minlength=client.task.num_outputs)
    return reply(None, {kinds.LABEL_COUNTS: counts.tolist()})
