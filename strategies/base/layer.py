"""`Layer`: what surrounds every exchange between an algorithm and its clients."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from florets.strategies.base.exchange import Replies
from florets.strategies.base.groups import Grouping
from florets.strategies.base.models import Averaging, Models, Updates
from florets.strategies.base.report import Client, Detail
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import FloatArray
from florets.task.wire.replies import Losses, Update


class Layer:
    """A layer around an algorithm; its `State` is kept in the strategy's, under its `name`."""

    name: ClassVar[str]
    State: ClassVar[type[Any] | None] = None
    under_noise: ClassVar[bool] = False
    """Whether noise covers what the layer makes of updates and losses; `coverage` says with which keys."""

    def kept(self, r: Round) -> Any:
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

    def averaging(self, averaging: Averaging) -> Averaging:
        """Return the rule by which updates become models."""
        return averaging

    def begin(self, r: Round) -> None:
        """Begin a round whose participants and models are known."""

    def allow(self, kind: str, handler: object) -> None:
        """Raise ValueError for a message that must not be sent."""

    def compared(self, models: Models, r: Round) -> Models:
        """Return the models that participants' losses are taken on."""
        return models

    def losses(self, replies: Replies[Losses], r: Round, everybody: bool) -> Replies[Losses]:
        """Return the losses that an algorithm gets, of all participants (`everybody`) or of some."""
        return replies

    def grouping(self, group: Grouping, r: Round) -> Grouping:
        """Return how rows are grouped, given how the inner layers do it."""
        return group

    def choices(self, r: Round) -> dict[str, int] | None:
        """Return the participants' models where clients do not choose themselves; None: they do."""
        return None

    def trains(self, plan: Plan[Update], r: Round) -> Plan[Update]:
        """Return the training exchange as it is sent."""
        return plan

    def updates(self, replies: Replies[Update], r: Round) -> Replies[Update]:
        """Return the valid updates of the training exchange."""
        return replies

    def vectors(self, vectors: Mapping[str, NDArray[Any]], r: Round) -> Mapping[str, NDArray[Any]]:
        """Return clients' vectors as an algorithm may keep them, by key."""
        return vectors

    def counted(self, updates: Updates, r: Round) -> Updates:
        """Return the updates that count in an average."""
        return updates

    def bounded(self, bank: FloatArray, r: Round) -> FloatArray:
        """Return averages (K, R) of groups that were drawn at random."""
        return bank

    def seals(self, what: Literal["updates", "losses"]) -> str:
        """Return why the algorithm may only average updates, or group losses; empty: it may look at each."""
        return ""

    def allows_tests(self, r: Round) -> bool:
        """Say whether clients may send test results."""
        return True

    def combined(self, bank: FloatArray, r: Round) -> FloatArray:
        """Return the round's next models (K, R)."""
        return bank

    def details(self, r: Round) -> Mapping[str, Detail]:
        """Return the layer's part of the round's report."""
        return {}
