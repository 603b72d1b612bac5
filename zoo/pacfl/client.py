"""PACFL's clients: principal vectors of their inputs."""

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.task.device import one_thread
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.pacfl.messages import PrincipalVectors

_NOTHING = 1e-9
"""Relative to the largest singular value: below it a vector is rounding error, and any direction would do."""


def principal_vectors(client: Client) -> RecordDict:
    """Return the first p principal vectors of each class's inputs, or of all inputs, and the place of each.

    Source: Vahidian et al. 2023, the client's truncated singular value decomposition.
    """
    inputs = client.data.x_train.flatten(1).cpu().numpy().astype(np.float64)
    labels = client.data.y_train.cpu().numpy()
    if client.config.get(kinds.VECTORS_OF) != "class" or client.loss != "cross_entropy":
        labels = np.zeros(len(inputs), dtype=np.int64)
    vectors, places = principal_directions(inputs, labels, int(client.number(kinds.VECTORS)))
    return pack(PrincipalVectors, places=places, principal=vectors)


def principal_directions(
    inputs: NDArray[np.float64], labels: NDArray[np.integer], count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the first left singular vectors (D, m) of each class's inputs (n, D), not centred, and their places.

    The vectors have length 1 and stand class by class; a class whose inputs have a lower rank than `count` has as
    many as that. Places (m,), rising, are the class times `count` plus the vector's rank in its class.
    """
    found, places = [], []
    for label in np.unique(labels):
        with one_thread():
            vectors, values, _ = np.linalg.svd(inputs[labels == label].T, full_matrices=False)
        rank = min(count, int(np.sum(values > _NOTHING * max(values[0], np.finfo(np.float64).tiny))))
        found.append(vectors[:, :rank])
        places.append(int(label) * count + np.arange(rank, dtype=np.int64))
    together = np.concatenate(found, axis=1)
    if together.shape[1] == 0:
        raise ValueError("all inputs are zero: they have no principal vectors.")
    return together, np.concatenate(places)
