"""k-FED: clients cluster their own data, the server groups their centres in one shot, then FedAvg in each group."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor

from florets import ManyModels, Round, setting
from florets.client_app.client import Client as LocalClient
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, centroids, nearest_centroid
from florets.strategies.shared.frozen_groups import FrozenClusters, FrozenGroups
from florets.task.device import one_thread
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import CENTRES, MODELS
from florets.task.wire.records import MalformedMessage

KMEANS = "florets.zoo.k_fed:kmeans"

MAX_COORDINATE = 1e15
"""Guards squared distances against implausible claims: beyond it they lose all figures, later they overflow."""


@dataclass(frozen=True)
class KFEDSettings(ManyModels):
    """Clients cluster their own data, the server groups the centres once, then FedAvg in each group."""

    freezes: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"descriptors"})

    local_clusters: int = setting(1, "k', centres that a client finds in its data; 1: their mean", least=1)
    features: Literal["inputs", "inputs_and_targets"] = setting(
        "inputs", "what is clustered: the inputs, or the inputs with the targets (labels one-hot) as well"
    )


@dataclass(frozen=True)
class LocalCentres:
    """Reply to `KMEANS`: centres (n, D) of a client's own data, and how many of its samples belong to each (n,)."""

    sizes: Annotated[IntArray, codec.Numbers("n", integer=True, least=1)]
    centres: Annotated[FloatArray, codec.Tensor("n", "D", most=MAX_COORDINATE, double=True)]

    def check(self) -> None:
        """Hold the sizes to what a client can have."""
        if int(self.sizes.sum()) > codec.MAX_EXAMPLES:
            raise MalformedMessage(f"the sizes sum to more than {codec.MAX_EXAMPLES} samples")


class KFED(FrozenClusters[KFEDSettings, FrozenGroups]):
    """One-shot federated k-means on the data themselves, whatever the models make of them.

    A client belongs to the group that holds most of its samples; group g trains initial model g by federated
    averaging, from round 1 on. What clients send are means of samples: of a client with a single sample, or with as
    many local clusters as samples, the samples themselves.

    Source: Dennis et al. 2021, Alg. 1 and 2, followed by FedAvg in each group; CLoVE, App. C.1.1. Deviation:
    clients run k-means++ with ten starts in place of Awasthi and Sheffet's k-means.
    """

    leaving = (MODELS, CENTRES)
    Settings = KFEDSettings
    State = FrozenGroups

    def check(self, models: Models) -> None:
        """Refuse more local clusters than models."""
        super().check(models)
        local = self.settings.local_clusters
        if local > models.count:
            raise ValueError(
                f"local_clusters={local}: a client cannot hold more groups than the {models.count} there are; lower "
                "local_clusters, or raise k"
            )

    def describe(self, clients: Sequence[Client], r: Round) -> Replies[LocalCentres]:
        """Ask for the centres of each client's data."""
        own = self.settings
        # Labels are one-hot columns next to the input.
        length = math.prod(self.input_shape) + (self.num_outputs if own.features == "inputs_and_targets" else 0)
        settings: dict[str, object] = {kinds.LOCAL_CLUSTERS: own.local_clusters, kinds.FEATURES: own.features}

        def read(_: str, content: RecordDict) -> LocalCentres:
            return codec.read(LocalCentres, content, D=length, n=range(1, own.local_clusters + 1))

        requests = [r.request_custom(KMEANS, one, None, settings, category="query") for one in clients]
        replies = r.ask(requests, read)
        means = [np.average(found.centres, axis=0, weights=found.sizes) for _, found in replies.ok]
        r.note_vectors("means", [key for key, _ in replies.ok], means)
        return replies

    def form(self, clients: Sequence[LocalCentres], r: Round) -> tuple[IntArray, FloatArray]:
        """Group all centres; a client belongs where most of its samples are."""
        owners = np.repeat(np.arange(len(clients)), [len(client.sizes) for client in clients])
        centres = np.concatenate([client.centres for client in clients])
        groups, means = group_centres(centres, owners, r.models.count, r.random(Purpose.CLUSTERING))
        own = [main_group(groups[owners == index], client.sizes) for index, client in enumerate(clients)]
        return np.array(own, dtype=np.int64), means

    def place(self, client: LocalCentres, centroids: FloatArray) -> int:
        """Return the group of a client that comes later, by the groups' means alone, as Dennis et al. have it."""
        return main_group(nearest_centroid(client.centres, centroids), client.sizes)


def group_centres(
    centres: FloatArray, owners: IntArray, num_groups: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Return the group (N,) of all clients' centres (N, D), in one pass, and each group's mean (C, D).

    One random client's centres are taken as they are; then, as long as there are too few, the centre that is farthest
    from all those taken is taken as well. Every centre then belongs to the nearest of those taken. Where there are
    fewer distinct centres than `num_groups`, fewer groups are found. No client has more centres than groups.

    Source: Dennis et al. 2021 (k-FED), Alg. 2; the paper leaves open which client comes first.
    """
    first = rng.choice(np.unique(owners))
    taken: list[int] = []
    distances = np.full(len(centres), np.inf)

    def take(row: int) -> None:
        taken.append(row)
        np.minimum(distances, np.linalg.norm(centres - centres[row], axis=1), out=distances)

    for row in np.flatnonzero(owners == first):
        # A centre sent twice is one.
        if distances[row] > 0:
            take(int(row))
    while len(taken) < num_groups and distances.max() > 0:
        take(int(distances.argmax()))
    groups = canonical(nearest_centroid(centres, centres[taken]))
    return groups, centroids(centres, groups)


def main_group(groups: IntArray, sizes: IntArray) -> int:
    """Return the group that holds most of a client's samples; the lowest number among equals.

    `groups` (N,) are those of the client's centres, `sizes` (N,) the samples behind each.
    """
    # Integers all the way: bincount's weights would be floats, and ties would hang on rounding.
    samples = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.add.at(samples, groups, sizes)
    return int(samples.argmax())


def kmeans(client: LocalClient) -> RecordDict:
    """Return at most k' centres of the training set, and how many samples belong to each (Dennis et al., Alg. 1)."""
    with_targets = client.config.get(kinds.FEATURES) == "inputs_and_targets"
    rows = feature_rows(client.data.x_train, client.data.y_train, client.task.num_outputs, with_targets)
    most = int(client.number(kinds.LOCAL_CLUSTERS, 1))
    centres, sizes = local_centres(rows, most, client.random(Purpose.LOCAL_KMEANS))
    return codec.pack(LocalCentres, sizes=sizes, centres=centres)


def feature_rows(x: Tensor, y: Tensor, num_outputs: int, with_targets: bool) -> FloatArray:
    """Return one row for each sample (n, D): its input, flat, then its target: classes one-hot, or one entry."""
    rows: FloatArray = x.flatten(1).cpu().numpy().astype(np.float64)
    if not with_targets:
        return rows
    targets = y.cpu().numpy()
    beside = targets[:, np.newaxis] if y.is_floating_point() else np.eye(num_outputs)[targets]
    return np.concatenate([rows, beside], axis=1)


def local_centres(
    rows: FloatArray, num_clusters: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the centres (k'', D) of a client's samples and how many, at least one, belong to each (k'',).

    There are at most `num_clusters`, k', and fewer where there are fewer distinct samples. 1: the mean, no k-means.

    Source: Dennis et al. 2021, Alg. 1. Deviation: k-means++, the best of ten starts, stands for Awasthi and Sheffet's
    k-means.
    """
    if num_clusters == 1:
        return rows.mean(axis=0, keepdims=True).astype(np.float32), np.array([len(rows)])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= num_clusters:
        return distinct.astype(np.float32), counts.astype(np.int64)
    from sklearn.cluster import KMeans  # it takes a second that other clients' work does not need
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(num_clusters, random_state=int(rng.integers(2**31 - 1)), n_init=10)
    with one_thread(), warnings.catch_warnings():
        # Rows that differ only in their last bits can fall together: fewer centres then, as documented.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(rows)
    found, sizes = np.unique(labels, return_counts=True)
    return model.cluster_centers_[found].astype(np.float32), sizes.astype(np.int64)
