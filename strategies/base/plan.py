"""`Plan`: one exchange of a round, as an algorithm decides on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from florets.strategies.base.exchange import Read, Request
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray
from florets.task.wire.replies import Update

R = TypeVar("R", covariant=True)
Combine = Callable[[Sequence[tuple[str, Update]]], FloatArray]


@dataclass(frozen=True)
class Plan(Generic[R]):
    """One exchange of a round: its training, or its test evaluation.

    Attributes
    ----------
    requests
        One for each client that takes part.
    read
        How a reply is read.
    combine
        How the valid updates, in the order of the client keys, become the next bank (K, R); None: the strategy's
        averaging (`Strategy.average`). It may change the state and the assignment, and return another number of
        models; not the updates, nor the models that it averages. Outliers have been rejected; `weighting`,
        `shared_layers` and a method's `average` are its own affair.
    models
        The models that the round starts from, where there are more or fewer than before; None: the last round's.
    participants
        Who takes part, where it is not those that were sampled.
    keep
        Keeps what of the valid updates is the clients' own, and returns those of the models that they share; None:
        there is nothing of the kind.
    """

    requests: list[Request]
    read: Read[R]
    combine: Combine | None = None
    models: Models | None = None
    participants: Sequence[Client] | None = None
    keep: Callable[[Sequence[tuple[str, Update]]], Sequence[tuple[str, Update]]] | None = None
