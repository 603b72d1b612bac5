"""Features of classes, as clients of several methods send them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.session import State
from florets.task.training.features import features
from florets.task.training.modules import load


def class_labels(client: Client) -> NDArray[np.int64]:
    """Return the class of each training sample (n,)."""
    if client.loss != "cross_entropy":
        raise ValueError(f"prototypes need classes, which a task with task.loss={client.loss} does not have")
    labels: NDArray[np.int64] = client.data.y_train.cpu().numpy()
    return labels


def own_features(client: Client, state: State, head: Sequence[str]) -> NDArray[np.float64]:
    """Return the features (n, D) of the training samples in a model, the inputs of its head."""
    load(client.module, state)
    return features(client.module, client.data.x_train, head)


def copied(arrays: dict[str, NDArray[np.float32]]) -> State:
    """Return a model's entries in memory of their own: as trained they may be the memory of the one module."""
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


Features = NDArray[np.float64]


Labels = NDArray[np.int64]


def class_means(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], Labels]:
    """Return the mean feature of each class that is there, (P, D) in the order of classes, and all counts (C,)."""
    counts = np.bincount(labels, minlength=num_classes)
    means = [features[labels == label].mean(axis=0) for label in np.flatnonzero(counts)]
    return np.stack(means).astype(np.float32), counts
