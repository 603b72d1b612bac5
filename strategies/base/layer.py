"""`Layer`: what stands between an algorithm and its clients, around every exchange of a round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.report import Client, Detail
from florets.strategies.core import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from florets.strategies.base.exchange import Replies
    from florets.strategies.base.models import Averaging, Models, Updates
    from florets.strategies.base.round import Plan, Round
    from florets.task.wire.replies import Losses, Update

Rows = FloatArray | Callable[[BoolArray], FloatArray]
"""Rows (M, D) to be grouped, or a function that returns them from the mask (M,) of those that say what is common."""
Cluster = Callable[[FloatArray], IntArray]
"""Rows (M, D) to clusters (M,), numbered from 0 without a gap."""


@dataclass(frozen=True)
class Groups:
    """Clients in clusters, and the models that the clusters are given.

    Attributes
    ----------
    keys
        Clients, (M,).
    rows
        What they were grouped by, (M, D).
    labels
        Cluster of each, (M,).
    aside
        Those that had no say in the clusters and joined the nearest one afterwards, (M,).
    models
        Model of each cluster, (C,); empty before `matched`.
    centres
        Centre of each cluster, (C, D), where it is not the mean of its members; None: it is.
    is_last
        No later round of this run can group clients (a budget ends): these groups are to be frozen.
    """

    keys: Sequence[str]
    rows: FloatArray
    labels: IntArray
    aside: BoolArray
    models: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    centres: FloatArray | None = None
    is_last: bool = False

    @property
    def core(self) -> "Groups":
        """The groups without those that were set aside."""
        if not self.aside.any():
            return self
        inside = ~self.aside
        keys = [key for key, is_in in zip(self.keys, inside.tolist(), strict=True) if is_in]
        return replace(self, keys=keys, rows=self.rows[inside], labels=self.labels[inside], aside=self.aside[inside])

    def matched(self, match: Callable[["Groups"], IntArray], count: int, source: str = "match") -> "Groups":
        """Return the groups with the model (C,) that `match` gives each cluster, of `count`; all different."""
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
    """Return the groups of rows as they are."""
    everybody = np.ones(len(keys), dtype=np.bool_)
    values = rows(everybody) if callable(rows) else rows
    return Groups(keys, values, cluster(values), ~everybody)


class Layer:
    """A layer around an algorithm; each hook has a default that changes nothing.

    A layer's own state is a dataclass `State`, kept in the strategy's state under the layer's `name`, so that it is
    part of every checkpoint and of every round that is repeated.
    """

    name: ClassVar[str]
    """As the log and checkpoints name it."""
    State: ClassVar[type[Any] | None] = None
    covers: ClassVar[frozenset[str] | None] = None
    """Of what an algorithm asks (`Settings.asks`) what the layer can protect; None: it has no say."""
    needs_updates: ClassVar[bool] = False
    """Whether it looks at single updates, which masks hide."""

    def kept(self, r: "Round") -> Any:
        """Return the layer's own state."""
        assert self.State is not None
        layers: dict[str, Any] = r.strategy.state.layers
        if self.name not in layers:
            layers[self.name] = self.State()
        return layers[self.name]

    @property
    def message(self) -> Mapping[str, str | float]:
        """Settings of every message."""
        return {}

    def can_take_part(self, client: Client) -> bool:
        """Say whether a client may be sampled."""
        return True

    def averaging(self, averaging: "Averaging") -> "Averaging":
        """Return the rule by which updates become models."""
        return averaging

    def begin(self, r: "Round") -> None:
        """Begin a round, of which participants and models are known."""

    def allow(self, kind: str, handler: object) -> None:
        """Raise ValueError for a message that must not be sent."""

    def compared(self, models: "Models", r: "Round") -> "Models":
        """Return the models that participants' losses are taken on."""
        return models

    def losses(
        self, replies: "Replies[Losses]", limit: float, r: "Round", everybody: bool
    ) -> tuple["Replies[Losses]", float]:
        """Return the losses that an algorithm is given, of all participants (`everybody`) or of some.

        `limit` is what longer vectors are scaled down to.
        """
        return replies, limit

    def grouping(self, group: Grouping, r: "Round") -> Grouping:
        """Return how rows are grouped, given how the layers inside do."""
        return group

    def choices(self, r: "Round") -> dict[str, int] | None:
        """Return the participants' models where they do not choose themselves; None: they do."""
        return None

    def trains(self, plan: "Plan[Update]", r: "Round") -> "Plan[Update]":
        """Return the training exchange as it is sent."""
        return plan

    def updates(self, replies: "Replies[Update]", r: "Round") -> "Replies[Update]":
        """Return the valid updates of the training exchange."""
        return replies

    def vectors(self, vectors: Mapping[str, NDArray[Any]], r: "Round") -> Mapping[str, NDArray[Any]]:
        """Return clients' vectors as an algorithm may keep them, by key."""
        return vectors

    def copies(self, rows: Mapping[str, NDArray[np.floating]], r: "Round") -> set[str]:
        """Return the clients whose rows (m, D) on folds of their data are those of another client."""
        return set()

    def counted(self, updates: "Updates", r: "Round") -> "Updates":
        """Return the updates that count in an average."""
        return updates

    def bounded(self, bank: FloatArray, r: "Round") -> FloatArray:
        """Return averages (K, R) of groups that were drawn at random."""
        return bank

    @property
    def seals(self) -> str:
        """Why the algorithm may take averages of the round's updates alone; empty: it may look at each."""
        return ""

    def allows_tests(self, r: "Round") -> bool:
        """Say whether clients may send test results."""
        return True

    def combined(self, bank: FloatArray, r: "Round") -> FloatArray:
        """Return the round's next models (K, R)."""
        return bank

    def details(self, r: "Round") -> Mapping[str, Detail]:
        """Return what the round's report says of the layer."""
        return {}
