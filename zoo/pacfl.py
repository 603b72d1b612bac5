"""PACFL: clients are grouped once, by principal angles between their data, then FedAvg in each group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets import Round, setting
from florets.client_app.client import Client as LocalClient
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.task.device import one_thread
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import MODELS, PRINCIPAL_VECTORS
from florets.task.wire.records import MalformedMessage
from florets.zoo.shared.linked_groups import LinkedClusters, LinkedSettings

SEND_VECTORS = "florets.zoo.pacfl:principal_vectors"
_LENGTHS = 1e-3
"""Tolerance of a vector's length around 1, wider than the rounding of float32."""
_NOTHING = 1e-9
"""Relative to the largest singular value: below it a vector is rounding error, and any direction would do."""


@dataclass(frozen=True)
class PACFLSettings(LinkedSettings):
    """Clients send principal vectors of their inputs; the server groups them once by angles, then FedAvg in each.

    Both angles are the paper's; its code takes the smallest. The sum is the default by measurement, 3 seeds each,
    cut at the largest gap: ARI 1.00 in all of them for pairs of labels (MNIST, digits, CIFAR-10), four labels of
    which groups share two, and rotated digits, where the smallest has 1.00, 1.00, 0.32, 0.36 +- 0.33 and 0.46: to
    it groups are one if two of their vectors are alike. Where groups have the same labels in other shares (label
    skew 4) it is the smallest that finds them, 1.00, and the sum has one group for all.
    """

    freezes: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"descriptors"})

    vectors: int = setting(3, "p, principal vectors that a client sends of each class, or of all its data", least=1)
    vectors_of: Literal["class", "client"] = setting(
        "class",
        "principal vectors of each class, or of all of a client's samples; without classes always the latter",
    )
    angle: Literal["sum_corresponding", "smallest_pair"] = setting(
        "sum_corresponding",
        "distance in degrees: sum of the angles of corresponding vectors, or smallest angle of any two vectors",
    )
    # The plain mean of the merged clusters' distances.
    linkage: ClassVar[str] = "weighted"


@dataclass(frozen=True)
class PrincipalVectors:
    """Reply to `SEND_VECTORS`: directions (D, m) of a client's inputs, of length 1, and their places (m,).

    A place is the class times p plus the rank in it; vectors of one place correspond in any two clients.
    """

    places: Annotated[IntArray, codec.Numbers("m", integer=True, least=0)]
    principal: Annotated[FloatArray, codec.Tensor("D", "m", double=True)]
    most: int
    """Number of places; given, not sent."""

    def check(self) -> None:
        """Hold the places to their order, and the vectors to their length."""
        if (np.diff(self.places) <= 0).any() or self.places[-1] >= self.most:
            raise MalformedMessage(f"places do not rise, or are not from 0 to {self.most - 1}")
        # A huge value becomes infinite first.
        if not (np.abs(np.linalg.norm(self.principal, axis=0) - 1.0) <= _LENGTHS).all():
            raise MalformedMessage("a principal vector has another length than 1")


class PACFL(LinkedClusters[PACFLSettings]):
    """Cluster the clients once, by what their inputs look like, before any training.

    Each client sends the first p left singular vectors of its inputs, as they are and not centred, of each of its
    classes; agglomerative clustering groups the clients by the angles between these vectors, and each group trains a
    model by federated averaging, all from the same first model. Groups that differ in what a label means alone are
    invisible to it.

    The vectors show what a client's data look like: of inputs that are not centred the first one is about the mean
    of a class.

    Source: Vahidian et al. 2023 (PACFL): single-shot clustering of the proximity matrix of principal angles, FedAvg
    in each cluster, newcomers by the extended matrix. p = 3, vectors of each class and the linkage are those of
    the published code. Deviation: the code's threshold in degrees is tuned for each data set, so that the default
    cuts the tree at its largest gap, where that is clear; clusters are merged below the threshold and not at it, so
    that 0 leaves every client alone; who has a model keeps it when newcomers change the tree.
    """

    leaving = (MODELS, PRINCIPAL_VECTORS)
    Settings = PACFLSettings

    def describe(self, clients: Sequence[Client], r: Round) -> Replies[PrincipalVectors]:
        """Ask for the principal vectors of each client's inputs."""
        own = self.settings
        classes = self.num_outputs if own.vectors_of == "class" else 1
        most, length = own.vectors * classes, math.prod(self.input_shape)
        settings = {kinds.VECTORS: own.vectors, kinds.VECTORS_OF: own.vectors_of}

        def read(_: str, content: RecordDict) -> PrincipalVectors:
            return codec.read(PrincipalVectors, content, D=length, m=range(1, most + 1), most=most)

        requests = [r.request_custom(SEND_VECTORS, one, None, settings, category="query") for one in clients]
        return r.ask(requests, read)

    def distances(self, clients: Sequence[PrincipalVectors]) -> FloatArray:
        """Return the angles between the clients' vectors."""
        return angle_matrix(clients, self.settings.angle)


def angle_matrix(clients: Sequence[PrincipalVectors], measure: str) -> FloatArray:
    """Return the angles (M, M) between any two clients' data, in degrees.

    ``"smallest_pair"`` is the smallest angle between any vector of one and any of the other, ``"sum_corresponding"``
    the sum of the angles of corresponding vectors, where one that only one of the two has counts 90.

    Source: Vahidian et al. 2023, the proximity matrix: the smallest angle, and the sum over corresponding vectors.
    Deviation: of a vector and its opposite the smaller angle counts, because a singular vector's sign means nothing;
    the code takes vectors with the sign that the decomposition gave them. It compares single vectors, as does
    ``"smallest_pair"``, which gives no principal angle of two subspaces.
    """
    angle = _sum_corresponding if measure == "sum_corresponding" else _smallest_pair
    angles = np.zeros((len(clients), len(clients)))
    for i, one in enumerate(clients):
        for j in range(i):
            angles[i, j] = angles[j, i] = angle(one, clients[j])
    return angles


def _sum_corresponding(one: PrincipalVectors, other: PrincipalVectors) -> float:
    _, mine, yours = np.intersect1d(one.places, other.places, assume_unique=True, return_indices=True)
    cosines = np.einsum("dm,dm->m", one.principal[:, mine], other.principal[:, yours])
    lacking = len(one.places) + len(other.places) - 2 * len(mine)
    return float(_degrees(cosines).sum()) + 90.0 * lacking


def _smallest_pair(one: PrincipalVectors, other: PrincipalVectors) -> float:
    # With an einsum in place of BLAS the products of two columns do not hang on how many others there are.
    products = np.einsum("da,db->ab", one.principal, other.principal)
    return float(_degrees(np.array(np.abs(products).max())))


def _degrees(cosines: FloatArray) -> FloatArray:
    degrees: FloatArray = np.degrees(np.arccos(np.minimum(np.abs(cosines), 1.0)))
    return degrees


def principal_vectors(client: LocalClient) -> RecordDict:
    """Return the first p principal vectors of each class's inputs, or of all inputs, and the place of each.

    Source: Vahidian et al. 2023, the client's truncated singular value decomposition.
    """
    inputs = client.data.x_train.flatten(1).cpu().numpy().astype(np.float64)
    labels = client.data.y_train.cpu().numpy()
    if client.config.get(kinds.VECTORS_OF) != "class" or client.loss != "cross_entropy":
        labels = np.zeros(len(inputs), dtype=np.int64)
    vectors, places = principal_directions(inputs, labels, int(client.number(kinds.VECTORS)))
    return codec.pack(PrincipalVectors, places=places, principal=vectors)


def principal_directions(
    inputs: FloatArray, labels: NDArray[np.integer], count: int
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the first left singular vectors (D, m) of each class's inputs (n, D), not centred, and their places.

    The vectors have length 1 and stand class by class; a class whose inputs have a lower rank than `count` has as
    many as that.
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
