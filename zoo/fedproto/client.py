"""FedProto's clients: training near the global class prototypes, and a client's own prototypes."""

from contextlib import AbstractContextManager, nullcontext

import torch
from flwr.app import RecordDict

from florets import Objective
from florets.client_app.client import Client
from florets.client_app.training import packed, trained
from florets.task.training.features import NearPrototypes, head_inputs
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.shared.client import class_labels, class_means, copied, own_features
from florets.zoo.shared.messages import PrototypeUpdate


def train_prototypes(client: Client) -> RecordDict:
    """Return the model after local training, the mean features of its classes, and the samples of each class.

    Without global prototypes, or with lambda 0, it is trained on the plain loss.

    Source: Tan et al. 2022 (FedProto), Alg. 1: the clients' part. Deviation: prototypes are taken after training, in
    eval mode, over all training samples.
    """
    labels = class_labels(client)
    module, head, weight = client.module, client.names(kinds.HEAD), client.number(kinds.PROTOTYPE_LAMBDA)
    near = weight > 0 and kinds.PROTOTYPES in client.content
    recorded: AbstractContextManager[list[torch.Tensor]] = head_inputs(module, head) if near else nullcontext([])
    with recorded as found:
        objective = None
        if near:
            sent, device = client.states(kinds.PROTOTYPES)[0], client.data.x_train.device
            prototypes, classes = sent[kinds.PROTOTYPES].to(device), sent[kinds.CLASSES].to(device)
            term = NearPrototypes(weight, prototypes, classes, client.task.num_outputs, found)
            objective = Objective((term,))
        arrays, loss = trained(client, client.states()[0], objective=objective)
    # Packed before the features are computed: the arrays may be the memory of the one module.
    model = packed(arrays)
    means, counts = class_means(own_features(client, copied(arrays), head), labels, client.task.num_outputs)
    n = client.num_examples
    return pack(PrototypeUpdate, values=model, train_loss=loss, num_examples=n, counts=counts, rows=means)
