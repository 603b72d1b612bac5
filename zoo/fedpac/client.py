"""FedPAC's clients: training of the head, then of the body near prototypes; statistics of the features."""

from dataclasses import replace

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets import Objective
from florets.client_app.client import Client
from florets.client_app.training import packed, trained
from florets.task.layers import body_and_head
from florets.task.randomness import Purpose
from florets.task.training.features import NearPrototypes, head_inputs
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.fedpac.messages import SplitUpdate
from florets.zoo.shared.client import Features, Labels, class_labels, class_means, copied, own_features


def train_split(client: Client) -> RecordDict:
    """Return the trained model, the prototypes of its classes, and the statistics of the features that came.

    In round 1 there are no global prototypes, and the body is trained on the plain loss.

    Source: Xu et al. 2023 (FedPAC): the clients' part; round 1 as in the released code.
    """
    labels, classes = class_labels(client), client.task.num_outputs
    body, head = body_and_head(client.module, client.names(kinds.HEAD))
    start = client.states()[0]
    before = own_features(client, start, head)
    statistics, spread = shares_and_spread(before, labels, classes)

    shorter = replace(
        client.training,
        learning_rate=client.training.learning_rate * client.number(kinds.HEAD_RATE),
        local_epochs=1.0,
        local_steps=None,
    )
    objective = Objective(frozen=body)
    arrays, _ = trained(client, start, Purpose.HEAD_TRAINING, objective=objective, training=shorter)
    middle = copied(arrays)
    factor = client.number(kinds.PROTOTYPE_LAMBDA)
    with head_inputs(client.module, head) as found:
        terms: tuple[NearPrototypes, ...] = ()
        if factor and kinds.PROTOTYPES in client.content:
            terms = (NearPrototypes(factor, *_prototypes(client, before, labels), classes, found),)
        arrays, loss = trained(client, middle, objective=Objective(terms, frozen=head))
        found.clear()
    model = packed(arrays)
    means, counts = class_means(own_features(client, copied(arrays), head), labels, classes)
    return pack(
        SplitUpdate,
        values=model,
        train_loss=loss,
        num_examples=client.num_examples,
        counts=counts,
        rows=means,
        shares=statistics,
        spread=spread,
    )


def _prototypes(
    client: Client, before: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the prototypes to be near, and their classes: global ones, and the client's own where there are none."""
    means, counts = class_means(before, labels, client.task.num_outputs)
    prototypes, classes = torch.from_numpy(means), torch.from_numpy(np.flatnonzero(counts))
    sent = client.states(kinds.PROTOTYPES)[0]
    lone = ~torch.isin(classes, sent[kinds.CLASSES])
    device = client.data.x_train.device
    return (
        torch.cat([prototypes[lone], sent[kinds.PROTOTYPES]]).to(device),
        torch.cat([classes[lone], sent[kinds.CLASSES]]).to(device),
    )


def shares_and_spread(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], float]:
    """Return each class's mean feature times its share of the samples, (P, D), and the spread of their estimate.

    The spread is (mean |f|^2 - sum_c |h_c|^2) / n, with h_c the rows, and never below 0.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the statistics of the combination of classifiers.
    """
    counts = np.bincount(labels, minlength=num_classes)
    rows = np.stack([features[labels == label].sum(axis=0) / len(labels) for label in np.flatnonzero(counts)])
    spread = (np.mean(np.sum(features**2, axis=1)) - np.sum(rows**2)) / len(labels)
    return rows.astype(np.float32), max(float(spread), 0.0)
