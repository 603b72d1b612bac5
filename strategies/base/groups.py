"""`Groups`: clients in clusters, and the model of each cluster; `Frozen`: groups that newcomers are placed in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.placement import Centres, place
from florets.task.wire.folds import RowForm

Rows = FloatArray | Callable[[BoolArray], FloatArray]
"""Rows (M, D) to group, or a function of the mask (M,) of those that define what is common."""
Cluster = Callable[[FloatArray], IntArray]
"""Rows (M, D) to clusters (M,), numbered from 0 without a gap."""


@dataclass(frozen=True)
class Groups:
    """Clients (M,) in clusters, by their rows (M, D), and the model (C,) of each cluster, empty before `matched`.

    `aside` (M,) joined the nearest cluster after the clustering. `centres` (C, D) are given where they are not the
    means of members; `is_last`, whether groups are to be frozen, where the algorithm must not decide.
    """

    keys: Sequence[str]
    rows: FloatArray
    labels: IntArray
    aside: BoolArray
    models: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    centres: FloatArray | None = None
    is_last: bool | None = None

    @property
    def core(self) -> "Groups":
        """The groups without those that were set aside."""
        if not self.aside.any():
            return self
        inside = ~self.aside
        keys = [key for key, is_in in zip(self.keys, inside.tolist(), strict=True) if is_in]
        return replace(self, keys=keys, rows=self.rows[inside], labels=self.labels[inside], aside=self.aside[inside])

    def matched(self, match: Callable[["Groups"], IntArray], count: int, source: str = "match") -> "Groups":
        """Return the groups with the model (C,) that `match` gives each cluster; all different, below `count`."""
        from florets.strategies.core.cluster import check_match

        if len(self.models):
            return self
        models = match(self)
        check_match(models, self.labels, count, source)
        return replace(self, models=models)

    @property
    def assignment(self) -> dict[str, int]:
        """Model of each client."""
        return dict(zip(self.keys, self.models[self.labels].tolist(), strict=True))

    @property
    def centroids(self) -> FloatArray:
        """Centre of each cluster, (C, D)."""
        # SciPy is for the server: a node that imports a strategy for its author's handler may lack it.
        from florets.strategies.core.cluster import centroids

        core = self.core
        return centroids(core.rows, core.labels) if self.centres is None else self.centres


Grouping = Callable[[Sequence[str], Rows, int, Cluster], Groups]
"""Keys (M,), their rows, the number of clusters and how rows are clustered, to groups."""


def grouped(keys: Sequence[str], rows: Rows, _: int, cluster: Cluster) -> Groups:
    """Return the groups of plain rows."""
    everybody = np.ones(len(keys), dtype=np.bool_)
    values = rows(everybody) if callable(rows) else rows
    return Groups(keys, values, cluster(values), ~everybody)


class Sealed:
    """What an algorithm may only hand on, to `Round.average` or `Round.group`: single clients' are not protected."""

    def __init__(self, values: Any, why: str) -> None:
        self._values, self._why = values, why

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, _: Any) -> Any:
        raise ValueError(self._why)

    def __getattr__(self, _: str) -> Any:
        raise ValueError(self._why)


def sealed(values: Any, why: str) -> Any:
    """Return values as an algorithm gets them, sealed for a reason; "": as they are."""
    return Sealed(values, why) if why else values


def opened(values: Any) -> Any:
    """Return what may be sealed, for code that averages or groups it, or protects single parts of it."""
    return vars(values)["_values"] if isinstance(values, Sealed) else values


class LossVectors(NamedTuple):
    """Losses (M, K) of `models` by the clients `keys`, sorted by key; sealed where they may only be grouped."""

    keys: Sequence[str]
    rows: FloatArray
    models: Models


FIT, FIT_ONE = 0.5, 0.1
"""Fraction of a group's usual cosine below which the group does not fit a client; the one row of a client with few
samples is noisier."""


def scale_rows(descriptors: FloatArray, low: FloatArray, width: FloatArray) -> FloatArray:
    """Return descriptors (..., B, l) with row b as (value - low_b) / width_b; 0 where the row had one value.

    Source: Fenoglio et al. 2025 (FLUX).
    """
    same = width[:, np.newaxis] == 0
    moved = descriptors - low[:, np.newaxis]
    scaled: FloatArray = np.where(same, 0.0, moved / np.where(same, 1.0, width[:, np.newaxis]))
    return scaled


@dataclass(frozen=True)
class FoldTraining:
    """How the clients of a discovery train the common model on folds of their data, and how rows are compressed."""

    folds: int
    size: int
    steps: int
    rate: float
    form: RowForm
    estimates: bool = False

    def size_of(self, num_examples: int) -> int:
        """Return the fold size of a client with this many samples; 0: too few, it trains once on all of them.

        Folds of half the run's size still suffice to tell whether a group fits.
        """
        size = min(self.size, num_examples // self.folds)
        return size if 2 * size >= self.size else 0


@dataclass(frozen=True)
class Frozen:
    """All that is needed to assign a newcomer to one of a run's groups.

    Clients are compared `by` their ``losses`` of all models (CLoVE), what a common model learns on ``folds`` of their
    data (discovery), ``descriptors`` of its features (FLUX), or the ``classes`` of their data (FedRC).

    `centroids` are mean loss vectors (C, K) of clusters whose models are `model_of_cluster` (C,); directions of mean
    rows (K, width); mean scaled descriptors (K, 2 (C + 1), l); or P_k(y), (K, C). `origin` and `scale` are of rows
    the mean of all clients' and each group's usual cosine (`Centres`), of descriptors minimum and range.
    """

    by: Literal["losses", "folds", "descriptors", "classes"]
    centroids: FloatArray
    models: Models | None = None
    model_of_cluster: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    origin: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))
    square_root: bool = False
    seed: int = 0
    training: FoldTraining | None = None

    @classmethod
    def by_losses(cls, groups: Groups, models: Models, square_root: bool = False) -> "Frozen":
        """Return groups that were made of losses of these models."""
        return cls("losses", groups.centroids, models, groups.models, square_root=square_root)

    def nearest_model(self, losses: FloatArray) -> int:
        """Return the model of the cluster whose centroid is nearest to one loss vector (K,)."""
        # SciPy is for the server: a node that imports a strategy of its author's for a handler may lack it.
        from florets.strategies.core.cluster import nearest_centroid

        vector = np.sqrt(np.maximum(losses, 0.0)) if self.square_root else losses
        nearest = nearest_centroid(np.atleast_2d(vector), self.centroids)[0]
        return int(self.model_of_cluster[nearest])

    def nearest_descriptor(self, descriptor: FloatArray) -> int:
        """Return the group nearest to a descriptor (2 (C + 1), l), the lowest of equals."""
        gaps = self.centroids - scale_rows(descriptor, self.origin, self.scale)
        return int(np.argmin((gaps**2).sum(axis=(1, 2))))

    def place_rows(self, rows: NDArray[np.floating], in_run: bool = False) -> tuple[int, float]:
        """Return the group of a client that sent these rows (m, width), -1 where none fits, and the cosine.

        One with few samples that takes part in training (`in_run`) joins the nearest group: its one row is too noisy
        to leave it without a model.
        """
        few = FIT_ONE if not in_run else None
        centres = Centres(self.origin, self.centroids, self.scale)
        return place(rows.astype(np.float64), centres, few if len(rows) == 1 else FIT)
