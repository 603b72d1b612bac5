"""`PersonalMethod`: what each client has of its own, within one group of all clients or several that are found."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from florets.strategies.base.averaging import Averaging, GradientAveraging
from florets.strategies.base.context import Plan, Round
from florets.strategies.base.models import Models
from florets.strategies.base.state import State
from florets.strategies.core import FloatArray
from florets.strategies.settings import Settings, choice_of
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
K = TypeVar("K")


class PersonalMethod(ABC, Generic[S, K]):
    """The clients' side of a personal method: the algorithm that it runs in says who belongs to which group.

    Each group has a model, which its clients train together as far as the method has them train one.

    Parameters
    ----------
    settings
        The method's own; None: its defaults.

    Attributes
    ----------
    num_outputs
        Of the task; 0 where nobody said.
    """

    Settings: ClassVar[type[Any]]
    Kept: ClassVar[type[Any]]
    """Class of what is kept for each client, a part of the algorithm's state."""
    name: ClassVar[str]
    trains_groups: ClassVar[bool] = True
    """Whether the groups' models are trained. If not, groups must be found before the method begins."""

    def __init__(self, settings: S | None = None) -> None:
        self.settings: S = self.Settings() if settings is None else settings
        self.num_outputs = 0
        self._state: Callable[[], State] = State

    def within(self, state: Callable[[], State], num_outputs: int) -> Self:
        """Take an algorithm's state, which `state` returns as it is at the time; return this method."""
        self._state, self.num_outputs = state, num_outputs
        return self

    @property
    def kept(self) -> K:
        """What is kept for each client: the state itself where the method is the whole algorithm, or in it."""
        state: Any = self._state()
        if isinstance(state, self.Kept):
            return cast(K, state)
        if state.kept is None:
            state.kept = self.Kept()
        return cast(K, state.kept)

    @property
    def is_active(self) -> bool:
        """Whether clients train by this method in the present round; else they train their group's model alone."""
        return self.trains_groups or self._state().phase != "clustering"

    def check(self, models: Models) -> None:
        """Raise ValueError where the method does not fit the first models."""

    @abstractmethod
    def train(self, context: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Plan one exchange in which each participant with a group trains; an update's model is its group's."""

    @abstractmethod
    def test(self, context: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Plan the evaluation in which each tester with a group tests its own model, or its group's before it has."""

    def averaged(self, models: Models, updates: Sequence[tuple[str, Update]], bank: FloatArray) -> FloatArray:
        """Return the next bank (K, R), given the plain averages of the updates: by default these."""
        return bank

    @abstractmethod
    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the model (R,) of each client that has one of its own."""


class Host(Protocol):
    """The algorithm in whose groups a method runs."""

    settings: Any
    averaging: Averaging
    num_outputs: int
    state: Any


def within_groups(host: Host, method: PersonalMethod[Any, Any]) -> PersonalMethod[Any, Any]:
    """Return a method that runs within the groups of an algorithm.

    Raises
    ------
    ValueError
        If the algorithm cannot have it.
    """
    choice_of(host.settings, "personal", method.name)
    return method_of(host, method)


def method_of(host: Host, method: PersonalMethod[Any, Any]) -> PersonalMethod[Any, Any]:
    """Return a method that runs within the groups of an algorithm, which trains by `Round.train_assigned`.

    Raises
    ------
    ValueError
        If the algorithm averages gradients.
    """
    if isinstance(host.averaging, GradientAveraging):
        raise ValueError(f"averaging=gradients: clients of {method.name} send models; use averaging=models")
    return method.within(lambda: host.state, host.num_outputs)


def of_groups(updates: Sequence[tuple[str, Update]], vectors: Sequence[FloatArray]) -> list[tuple[str, Update]]:
    """Return updates with what was made of the groups' models, (R,) each, in place of what is the clients' own."""
    return [
        (key, Update(own.model, vector, own.num_examples, own.train_loss, stable=own.stable))
        for (key, own), vector in zip(updates, vectors, strict=True)
    ]
