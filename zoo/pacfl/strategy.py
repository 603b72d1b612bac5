"""PACFL: clients are grouped once, by principal angles between their data, then FedAvg in each group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from flwr.app import RecordDict

from florets import Round, setting
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import MODELS
from florets.task.wire.leaving import PRINCIPAL_VECTORS as PRINCIPAL
from florets.zoo.pacfl.messages import PRINCIPAL_VECTORS, PrincipalVectors
from florets.zoo.shared.linked_groups import LinkedClusters, LinkedSettings


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
    angle: Literal["sum_corresponding", "smallest_pair", "smallest_principal"] = setting(
        "sum_corresponding",
        "distance in degrees: sum of the angles of corresponding vectors, smallest angle of any two vectors, or "
        "smallest principal angle of the subspaces",
    )
    # The plain mean of the merged clusters' distances.
    linkage: ClassVar[str] = "weighted"


_RANK = 1e-6
"""Singular values below this belong to no direction: vectors come in float32."""


def angle_matrix(clients: Sequence[PrincipalVectors], measure: str) -> FloatArray:
    """Return the angles (M, M) between any two clients' data, in degrees.

    A singular vector's sign means nothing: of a vector and its opposite the smaller angle counts, so that no angle of
    two vectors exceeds 90. `measure` is ``"smallest_pair"``: the smallest angle between any vector of one and any of
    the other; ``"smallest_principal"``: the smallest principal angle of the subspaces that the vectors span; or
    ``"sum_corresponding"``: the sum of the angles of corresponding vectors; one that only one of the two has counts
    90.

    Source: Vahidian et al. 2023, the proximity matrix: the smallest angle, and the sum over corresponding vectors.
    Deviation: the published code, and so ``"smallest_pair"``, compares single vectors, which gives no principal
    angle; those are ``"smallest_principal"``. The code takes vectors with the sign that the decomposition gave them.
    """
    if measure == "smallest_principal":
        clients = [replace(client, principal=_basis(client.principal)) for client in clients]
    angles = np.zeros((len(clients), len(clients)))
    for i, one in enumerate(clients):
        for j in range(i):
            angles[i, j] = angles[j, i] = _angle(one, clients[j], measure)
    return angles


def _angle(one: PrincipalVectors, other: PrincipalVectors, measure: str) -> float:
    if measure == "sum_corresponding":
        _, mine, yours = np.intersect1d(one.places, other.places, assume_unique=True, return_indices=True)
        cosines = np.einsum("dm,dm->m", one.principal[:, mine], other.principal[:, yours])
        lacking = len(one.places) + len(other.places) - 2 * len(mine)
        return float(_degrees(np.abs(cosines)).sum()) + 90.0 * lacking
    # With an einsum in place of BLAS the products of two columns do not hang on how many others there are.
    products = np.einsum("da,db->ab", one.principal, other.principal)
    largest = np.linalg.norm(products, 2) if measure == "smallest_principal" else np.abs(products).max()
    return float(_degrees(np.array(largest)))


def _degrees(cosines: FloatArray) -> FloatArray:
    degrees: FloatArray = np.degrees(np.arccos(np.minimum(cosines, 1.0)))
    return degrees


def _basis(vectors: FloatArray) -> FloatArray:
    """Return an orthonormal basis of what the columns span: those of two classes need not be orthogonal."""
    basis, values, _ = np.linalg.svd(vectors, full_matrices=False)
    found: FloatArray = basis[:, values > _RANK * values[0]]
    return found


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

    leaving = (MODELS, PRINCIPAL)
    Settings = PACFLSettings

    def describe(self, clients: Sequence[Client], r: Round) -> Replies[PrincipalVectors]:
        """Ask for the principal vectors of each client's inputs."""
        own = self.settings
        classes = self.num_outputs if own.vectors_of == "class" else 1
        most, length = own.vectors * classes, math.prod(self.input_shape)
        settings = {kinds.VECTORS: own.vectors, kinds.VECTORS_OF: own.vectors_of}

        def read(_: str, content: RecordDict) -> PrincipalVectors:
            return codec.read(PrincipalVectors, content, D=length, m=range(1, most + 1), most=most)

        return r.ask_custom(PRINCIPAL_VECTORS, clients, read, settings=settings)

    def distances(self, clients: Sequence[PrincipalVectors]) -> FloatArray:
        """Return the angles between the clients' vectors."""
        return angle_matrix(clients, self.settings.angle)
