"""FLUX: FedAvg, then groups by mean and spread of the clients' features in the common model, FedAvg in each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from flwr.app import RecordDict
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from florets import Round, Settings, State, Steps, Strategy, setting
from florets.client_app.client import Client as LocalClient
from florets.strategies.base.exchange import Replies
from florets.strategies.base.groups import Frozen, scale_rows
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, centroids
from florets.strategies.core.outliers import LEAST_CLIENTS, lower_median
from florets.task.descriptors import describe, projection
from florets.task.training.features import features
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import MODELS, MOMENTS
from florets.task.wire.records import MalformedMessage
from florets.task.wire.replies import Examples

DESCRIPTOR = "florets.zoo.flux:descriptor"

SLOPE = 0.06
"""The loss has levelled off when it fell by less than this in a round, relative to its first value."""
LEAST_ROUNDS = 3
"""Rounds of FedAvg before the loss is examined."""
LATEST = 0.8
"""Fraction of the rounds after which groups are frozen whatever the loss."""
_LEAST_DIMENSIONS = 8
_ABSENT = -1.0
_FACTOR = 100.0
FAR = f"rejected as an outlier: a value of its descriptor is over {_FACTOR:g} times the median client's largest"


@dataclass(frozen=True)
class FLUXSettings(Settings):
    """FedAvg, then groups by mean and spread of the clients' features in the common model, then FedAvg in each."""

    eps_scale: float = setting(1.0, "factor on the radius of DBSCAN that the knee gives", above=0)

    freezes: ClassVar[bool] = True
    compares = "clients"
    asks: ClassVar[frozenset[str]] = frozenset({"descriptors"})
    one_model: ClassVar[bool] = True
    """The groups say how many models there are; `k` is not used."""


@dataclass
class FLUXState(State):
    """What FLUX remembers."""

    # The median client's training loss in each round before there were groups.
    losses: list[float] = field(default_factory=list)
    # The common model and the groups; None before.
    frozen: Frozen | None = None
    # Largest value that a descriptor may have; infinity where too few clients were there to say.
    limit: float = float("inf")


@dataclass(frozen=True)
class Descriptor:
    """Reply to `DESCRIPTOR`: rows (2 (C + 1), l): overall mean and spread, the classes' means, their spreads."""

    rows: Annotated[FloatArray, codec.Tensor("rows", "l", name="descriptor", double=True)]
    num_examples: Examples


def read_descriptor(content: RecordDict, classes: int, dimensions: int) -> Descriptor:
    """Read the descriptor of a task with C `classes`, projected on l `dimensions`."""
    found = codec.read(Descriptor, content, rows=2 * (classes + 1), l=dimensions)
    means, spreads = found.rows[2 : 2 + classes], found.rows[2 + classes :]
    present = ~((means == _ABSENT).all(axis=1) & (spreads == _ABSENT).all(axis=1))
    if (found.rows[1] < 0).any() or (spreads[present] < 0).any():
        raise MalformedMessage("a spread of the descriptor is negative")
    return found


class FLUX(Strategy[FLUXSettings, FLUXState]):
    """Train one model, then group the clients once by what it makes of their data.

    While the common model's training loss falls, all clients train it (FedAvg). Then each sends its descriptor: mean
    and spread of its features, the inputs of the model's head, projected on a few random directions; of all its
    samples, which shows how inputs are distributed, and of each class, which shows labels and concepts. Every row is
    scaled to [0, 1] over the clients. DBSCAN groups the descriptors, and each group goes on from the common model
    with FedAvg of its own. Clients that come later join the group whose mean descriptor is nearest.

    In a task without classes each class counts as absent, and the first two rows are the whole descriptor.

    Source: Fenoglio et al. 2025 (FLUX, arXiv 2511.22305), and the published code for what follows: slope 0.06 after
    3 rounds and at most 0.8 of all, one dimension for each class, scaling by rows, minimum of two clients, radius at
    the knee.
    Deviation: the slope is that of the median client's training loss, relative to the first round's, and of the last
    round alone; the code takes accuracies on held-out data, and any earlier round will do. Features are always the
    input of the head, where the code takes those behind LeNet-5's convolutions. Descriptors are asked for in an
    exchange of its own, of all clients that are there, where in the code they come with the updates of a round in
    which all take part. At least 8 dimensions. Who has a model keeps it. The paper's k-means for a known K is left
    out.
    """

    leaving = (MODELS, MOMENTS)
    Settings = FLUXSettings
    State = FLUXState

    def frozen_clusters(self) -> Frozen | None:
        """Return the groups, and the model by which they were found."""
        return self.state.frozen

    def round(self, r: Round) -> Steps:
        """Train the common model until groups are due; form them, or place newcomers; train each group's model."""
        state = self.state
        if state.frozen is None and not self._is_due(r.server_round):
            state.phase = "training"
            updates = yield r.train({client.key: 0 for client in r.participants})
            # The median: one client that reports nonsense must neither hasten the groups nor put them off.
            losses = np.array([update.train_loss for _, update in updates], dtype=np.float64)
            state.losses.append(lower_median(losses))
            return r.average(updates)
        if state.frozen is None:
            state.phase = "clustering"
            r.models = self._form(r)
        else:
            state.phase = "stable"
            self._place(state.frozen, r)
        updates = yield r.train(self.assignment)
        return r.average(updates)

    def _is_due(self, server_round: int) -> bool:
        losses = self.state.losses
        if self.last_round is not None and server_round > LATEST * self.last_round:
            return True
        return len(losses) >= LEAST_ROUNDS and losses[-2] - losses[-1] < SLOPE * losses[0]

    def _form(self, r: Round) -> Models:
        """Group everybody who is online; return a model for each group, all equal to the common one."""
        state, common = self.state, r.models
        replies = self._ask(r.online, common, r)
        state.limit = _limit([reply.rows for _, reply in replies.ok])
        replies = self._without_outliers(replies, r)
        r.require(replies, "descriptor")
        with r.meter.part("cluster"):
            keys, descriptors = [key for key, _ in replies.ok], np.stack([reply.rows for _, reply in replies.ok])
            low, width = row_scale(descriptors)
            scaled = scale_rows(descriptors, low, width)
            points = scaled.reshape(len(scaled), -1)
            r.note_vectors("descriptors", keys, points)
            groups, radius = density_clusters(points, self.settings.eps_scale)
            means = centroids(points, groups).reshape(-1, *scaled.shape[1:])
        state.details = {"eps": radius}
        state.frozen = Frozen("descriptors", means, common, origin=low, scale=width, seed=r.seed)
        self.assignment.clear()
        self.assignment.update(zip(keys, groups.tolist(), strict=True))
        return common.replaced(np.repeat(common.bank, len(means), axis=0)) if len(means) > 1 else common

    def _place(self, frozen: Frozen, r: Round) -> None:
        """Give participants without a model that of the nearest group; who does not answer sits this round out."""
        if new := r.newcomers(self.assignment):
            assert frozen.models is not None
            replies = self._without_outliers(self._ask(new, frozen.models, r), r)
            self.assignment.update({key: frozen.nearest_descriptor(reply.rows) for key, reply in replies.ok})

    def _ask(self, clients: Sequence[Client], common: Models, r: Round) -> Replies[Descriptor]:
        """Ask for the clients' descriptors (one exchange)."""
        classes = self.num_outputs
        dimensions = max(classes, _LEAST_DIMENSIONS)
        settings = {kinds.CLASSES: classes, kinds.DIMENSIONS: dimensions, kinds.PROJECTION_SEED: r.seed}

        def read(_: str, content: RecordDict) -> Descriptor:
            return read_descriptor(content, classes, dimensions)

        with r.meter.part("describe"):
            model = common.one(0)
            requests = [r.request_custom(DESCRIPTOR, one, model, settings, category="query") for one in clients]
            return r.ask(requests, read)

    def _without_outliers(self, replies: Replies[Descriptor], r: Round) -> Replies[Descriptor]:
        # One huge value would be the range of its row, in which all others are then equal.
        far = {key for key, reply in replies.ok if np.abs(reply.rows).max() > self.state.limit}
        return r.reject(replies, far, FAR)


def _limit(descriptors: Sequence[FloatArray]) -> float:
    if len(descriptors) < LEAST_CLIENTS:
        return float("inf")
    largest = np.array([np.abs(rows).max() for rows in descriptors])
    return _FACTOR * max(lower_median(largest), 1.0)


def row_scale(descriptors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return minimum and range (B,) of each row of descriptors (M, B, l), over all clients and entries."""
    low = descriptors.min(axis=(0, 2))
    return low, descriptors.max(axis=(0, 2)) - low


def density_clusters(points: FloatArray, scale: float = 1.0) -> tuple[IntArray, float]:
    """Return the cluster of each point (M, D), numbered from 0 in order of first appearance, and the radius.

    Two points within the radius (`knee` of the distances to the nearest neighbours, times `scale`) are of one
    cluster, and so are their neighbours; a point that has none is a cluster of its own. That is DBSCAN with at least
    two points (a point and one neighbour are enough), in which every point is a core point or an outlier.

    Source: Fenoglio et al. 2025 (FLUX), adaptive DBSCAN; each outlier a cluster of its own as in the published code.
    """
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.int64), 0.0
    distances = squareform(pdist(points))
    others = distances + np.diag(np.full(len(points), np.inf))
    radius = scale * knee(np.sort(others.min(axis=1)))
    _, labels = connected_components(distances <= radius, directed=False)
    return canonical(labels.astype(np.int64)), radius


def knee(values: FloatArray) -> float:
    """Return where a rising curve (M,) begins to rise steeply, seen from its steep end; its largest value if nowhere.

    The curve is scaled to the unit square and turned by 180 degrees, so that it flattens. Its height above the
    diagonal is followed from the left. The last local maximum is the knee once the height falls below the maximum's
    by more than the mean distance of two points; a local minimum in between cancels it.

    Source: Satopää et al. 2011 (Kneedle) with S = 1, and the package kneed 0.8.6, which the published code of FLUX
    calls for a convex, increasing curve: plateaus and both ends count as maxima and minima. Over 800 random curves
    none differs from it. Version 0.8.5, of the time of that code, goes on after a minimum: in 46 of the 800 its knee
    is another, in none of the ten federations of `compare/digits`.
    Deviation: without a knee the published code fails.
    """
    last = len(values) - 1
    span = float(values[-1] - values[0])
    if last < 1 or span == 0:
        return float(values[-1])
    diagonal = np.arange(last + 1) / last
    height = 1.0 - (values[::-1] - values[0]) / span - diagonal
    before, after = np.append(height[0], height[:-1]), np.append(height[1:], height[-1])
    maxima, minima = (height >= before) & (height >= after), (height <= before) & (height <= after)
    fall = np.diff(diagonal).mean()
    found = None
    for place in range(last):
        if minima[place]:
            found = None
        elif maxima[place]:
            found = place
        if found is not None and height[place + 1] < height[found] - fall:
            return float(values[last - found])
    return float(values[-1])


def descriptor(client: LocalClient) -> RecordDict:
    """Return the descriptor of the training data; without class labels every class is absent.

    Source: Fenoglio et al. 2025 (FLUX), the client's descriptor extractor.
    """
    client.module.load_state_dict(client.states()[0])
    found = features(client.module, client.data.x_train, client.task.spec.head_layers)
    labels = client.data.y_train.cpu().numpy() if client.loss == "cross_entropy" else None
    seed, dimensions = int(client.number(kinds.PROJECTION_SEED)), int(client.number(kinds.DIMENSIONS))
    directions = projection(found.shape[1], dimensions, seed)
    rows = describe(found, labels, int(client.number(kinds.CLASSES)), directions)
    return codec.pack(Descriptor, rows=rows, num_examples=client.num_examples)
