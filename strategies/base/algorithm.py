"""`Algorithm`: what an algorithm says about itself. Only `plan` has to be written; everything else has a default."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.handlers import handler_paths
from florets.strategies.base.method import Method
from florets.strategies.base.models import Models
from florets.strategies.base.personal import PersonalMethod
from florets.strategies.base.placement import ClassShares, FrozenClusters, FrozenDescriptors, FrozenGroups
from florets.strategies.base.report import CostEstimate, Detail
from florets.strategies.base.state import State
from florets.strategies.core import FloatArray
from florets.strategies.settings import ChooseK, FirstRound, LossData, Settings
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import Update

S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=State)


class Algorithm(ABC, Generic[S, M]):
    """The questions that a strategy answers; `Strategy` asks them, round by round.

    Attributes
    ----------
    settings
        The algorithm's own keys; never changed.
    state
        All that the algorithm remembers: what a checkpoint holds. Everything else is made anew.
    k
        Number of clusters, "auto" where the algorithm is to find it; None: as many as there are models.
    first_round, choose_k, loss_data
        Run-level choices; None where the algorithm has no such choice.
    loss_batch
        Samples that losses are taken on while clustering; None: all.
    input_shape, num_outputs, loss
        Sizes of the task, and its loss (`florets.task.training.losses`); empty where nobody said.
    seed
        Of every draw; take generators from `Round.random`.
    personal
        What clients have of their own within the algorithm's groups; None: nothing.
    """

    Settings: ClassVar[type[Any]] = Settings
    """Class of the algorithm's settings."""
    State: ClassVar[type[Any]] = State
    """Class of what the algorithm remembers."""
    client_handlers: ClassVar[tuple[Any, ...]] = ()
    """The algorithm's own client handlers, functions or import paths ``package.module:function``.

    In a class that was made they are import paths, its method's handler among them; see docs/extending.md.
    """
    method: ClassVar[type[Method[Any, Any]] | None] = None
    """How clients train within their groups; None: local training as the run has it."""

    settings: S
    state: M
    k: int | Literal["auto"] | None
    first_round: FirstRound | None
    choose_k: ChooseK | None
    loss_data: LossData | None
    loss_batch: int | None
    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str
    seed: int
    personal: PersonalMethod[Any, Any] | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        by_method = () if cls.method is None or cls.method.handler is None else (cls.method.handler,)
        cls.client_handlers = handler_paths((*cls.client_handlers, *by_method))

    @abstractmethod
    def plan(self, context: Round) -> Plan[Update]:
        """Decide what this round's participants train; may ask them first (`context.ask_losses`).

        `context` is not changed: another number of models, or other participants than were sampled, are the plan's.
        """

    def plan_evaluation(self, context: Round) -> Plan[TestResult]:
        """Decide what each of `context.testers` tests: by default the model that it is assigned."""
        return context.test_assigned(self.assignment)

    def check(self, models: Models) -> None:
        """Raise ValueError where the algorithm does not fit the first models; called before any client is asked."""
        starts_with_k = not (self.settings.one_model or self.settings.grows)
        if isinstance(self.k, int) and self.k > models.count and starts_with_k:
            raise ValueError(
                f"k={self.k} clusters need as many models, but the initial arrays hold {models.count}; "
                "pack K models with florets.task.wire.bank.pack"
            )
        if self.settings.grows and models.shared.all():
            raise ValueError(
                f"shared_layers={list(models.shared_layers)} leaves nothing to differ between the models that this "
                "algorithm adds; leave a layer out, or use one model (fedavg)"
            )
        if self.personal is not None:
            self.personal.check(models)

    @property
    def assignment(self) -> dict[str, int]:
        """Model index of every client that has one, by client key."""
        return self.state.assignment

    @property
    def mixtures(self) -> Mapping[str, FloatArray]:
        """Shares (K,) of the models in each client that mixes them, by key; empty where each has one."""
        return {}

    @property
    def phase(self) -> str:
        """Phase of the current round, for the report."""
        return self.state.phase

    @property
    def first_rounds(self) -> int:
        """Rounds that the algorithm needs before those that `num_rounds` counts."""
        return self.settings.first_rounds

    def estimate_cost(self, models: Models) -> CostEstimate | None:
        """Return what those rounds will cost with the clients that are online; None where there are none."""
        return None

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Learn from the round's valid updates, beside their average; by default nothing.

        Called once a round, after the updates were checked and before they are averaged. It may change the state,
        and `assignment`, which is then overwritten by the updates' own models; not the updates, nor the models.
        """

    def details(self) -> dict[str, Detail]:
        """Return what this algorithm alone has to tell of the round that just ended."""
        return {}

    def frozen_clusters(self) -> FrozenClusters | FrozenGroups | FrozenDescriptors | ClassShares | None:
        """Return the clusters that a new client is assigned by; None: it takes the model with the lowest loss."""
        return None

    def own_models(self, models: Models) -> dict[str, FloatArray] | None:
        """Return the model (R,) of each client that has one beside the final `models`; None where nobody can have."""
        return None if self.personal is None else self.personal.own_models(models, self.assignment)

    def final_models(self, models: Models) -> Models:
        """Return the models that `assignment` refers to at the end of a run: by default the bank's."""
        return models
