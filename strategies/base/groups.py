"""`Groups`: clients in clusters, and the model of each cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray

Rows = FloatArray | Callable[[BoolArray], FloatArray]
"""Rows (M, D) to group, or a function of the mask (M,) of those that define what is common."""
Cluster = Callable[[FloatArray], IntArray]
"""Rows (M, D) to clusters (M,), numbered from 0 without a gap."""


@dataclass(frozen=True)
class Groups:
    """Clients (M,) in clusters, by their rows (M, D), and the model (C,) of each cluster, empty before `matched`.

    `aside` (M,) were left out of the clustering and joined the nearest cluster afterwards. `centres` (C, D) are those
    of the clusters, where they are not the means of their members. `is_last` says whether these groups are to be
    frozen, where that must not depend on them; None: the algorithm decides.
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
