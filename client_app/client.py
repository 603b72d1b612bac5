"""`Client`: a message to one client, with what its process keeps (`session`) and its node allows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from numpy.typing import NDArray
from torch.nn import Module

from florets.client_app.caps import Limits
from florets.client_app.node import (
    client_key,
    config_of,
    device_of,
    has_owner,
    is_simulated,
    number,
    number_of,
)
from florets.client_app.session import State, session
from florets.task.client_data import ClientData, Part, draw_samples, hold_out
from florets.task.node_config import shares_statistics
from florets.task.randomness import Purpose, generator
from florets.task.task import Task
from florets.task.training.linear import LinearNames
from florets.task.training.losses import Evaluated
from florets.task.training.newton import SecondOrder
from florets.task.training.objective import PLAIN, Objective, Proximal
from florets.task.training.settings import KEYS, Training
from florets.task.training.vectorised import Trained
from florets.task.wire import kinds


@dataclass(frozen=True)
class Prepared:
    """What was computed for one message, together with others: losses as they may be sent, training, test."""

    losses: NDArray[np.float64] | None = None
    trained: Trained | None = None
    tested: Evaluated | None = None
    seconds: float = 0.0


NOTHING = Prepared()


class Client:
    """One client that has been sent one message: its data and model, and what the message holds.

    Nothing is remembered until the next message. A setting that is missing or wrong raises ValueError, as does a
    message that asks for too much (`florets.client_app.caps`).
    """

    def __init__(self, message: Message, context: Context) -> None:
        self.message, self.content = message, message.content
        self.config = config_of(message.content)
        self.context = context
        if has_owner(context):
            Limits(context.node_config).check_message(message.content, self.config)
        # What was computed for this message together with others, before its handler begins.
        self.prepared: Prepared = NOTHING
        # Of local training: halvings of a rate with which it diverged, and what Newton's steps began with.
        self.halvings = 0
        self.second_order: SecondOrder | None = None

    @property
    def key(self) -> str:
        """Name under which this client is the same one again after a restart."""
        return client_key(self.context)

    @property
    def is_simulated(self) -> bool:
        """Whether the node is one of a simulation, where server and clients are one user's."""
        return is_simulated(self.context)

    @property
    def shares_statistics(self) -> bool:
        """Whether this node sends sums of its tests and of its targets: unless its config says false."""
        return shares_statistics(self.context.node_config)

    @property
    def hides_records(self) -> bool:
        """Whether the server asks for `privacy.kind=example`."""
        return self.config.get(kinds.PRIVACY) == kinds.RECORDS

    @cached_property
    def task(self) -> Task:
        """The task that the message describes."""
        return session.task(self.config, self.context)

    @property
    def data(self) -> ClientData:
        """Data of this client that it trains and tests on, on the device that it computes on."""
        return self._parts[0]

    @cached_property
    def loss_data(self) -> Part:
        """Inputs and targets of the losses: the training data, a part that is held out, or a batch of either."""
        part = self._parts[1]
        batch = self.number(kinds.LOSS_BATCH, 0)
        if batch < 0 or not float(batch).is_integer():
            raise ValueError(f"the message's config has {kinds.LOSS_BATCH}={batch!r}, not a count of samples")
        if not 0 < batch < len(part[0]):
            return part
        return draw_samples(part, int(batch), self.random(Purpose.LOSS_BATCH))

    @cached_property
    def _parts(self) -> tuple[ClientData, Part]:
        data = session.client(self.config, self.context, self.server_round)
        if self.config.get(kinds.LOSS_DATA) != kinds.HELD_OUT:
            return data, (data.x_train, data.y_train)
        # Round 0: the same samples in every round of a run.
        rng = self._generator(0, Purpose.HELD_OUT)
        return hold_out(data, rng, self.task.is_own and self.task.stratifies)

    @property
    def module(self) -> Module:
        """The process's one module of this task; whoever uses it loads all of its state first."""
        return session.module(self.config, self.context)

    @cached_property
    def training(self) -> Training:
        """Local training as the message asks for it, at the learning rate of its round."""
        for name in ("learning_rate", "local_epochs", "batch_size"):
            if KEYS[name] not in self.config:
                raise ValueError(f"the message's config has no {KEYS[name]!r}")
        return Training.received(self.config).in_round(self.server_round)

    @property
    def objective(self) -> Objective:
        """What the message asks to minimise: the loss, with a proximal term, without the frozen layers."""
        if kinds.PROXIMAL_MU not in self.config and kinds.FROZEN not in self.config:
            return PLAIN
        mu = self.number(kinds.PROXIMAL_MU, 0.0)
        return Objective(terms=(Proximal(mu),) if mu else (), frozen=tuple(self.names(kinds.FROZEN)))

    @property
    def loss(self) -> str:
        """Name of the task's loss, see `florets.task.training.losses.per_sample_losses`."""
        return self.task.spec.loss

    @property
    def num_examples(self) -> int:
        """Number of training samples."""
        return self.data.x_train.shape[0]

    @property
    def linear(self) -> LinearNames | None:
        """Names of the model's entries where it is a linear one that is computed in NumPy, else None."""
        return session.linear(self.config, self.context)

    def arrays(self, record: str = kinds.ARRAYS) -> ArrayRecord:
        """Return one of the message's array records; raise ValueError where it has none of this name."""
        arrays = self.content.get(record)
        if not isinstance(arrays, ArrayRecord):
            raise ValueError(f"the message has no {record!r}")
        return arrays

    def states(self, record: str = kinds.ARRAYS) -> list[State]:
        """Return the models of an array record as state dicts, which later messages share: do not change them."""
        return session.states(self.arrays(record))

    @property
    def device(self) -> torch.device:
        """Where this client computes."""
        return device_of(self.config, self.context)

    def on_device(self, state: State) -> State:
        """Return a model on this client's device; do not change it. Those of `states` are moved once."""
        return session.on_device(state, self.device)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number among the message's settings; raise ValueError where there is none and no default."""
        return number(self.config, key, default)

    def names(self, key: str) -> list[str]:
        """Return a list of names among the message's settings, empty where there is none."""
        value = self.config.get(key, [])
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            raise ValueError(f"the message's config has {key}={value!r}, not a list of names")
        return list(map(str, value))

    @property
    def server_round(self) -> int:
        """Number of the round, from 1; 0 where the server names none."""
        return int(self.number(kinds.SERVER_ROUND, 0))

    def random(self, purpose: Purpose | str) -> np.random.Generator:
        """Return the generator of one of this client's draws in this round: the same at every call."""
        return self._generator(self.server_round, purpose)

    def _generator(self, server_round: int, purpose: Purpose | str) -> np.random.Generator:
        return generator(int(self.number(kinds.SEED, 0)), server_round, purpose, number_of(self.config, self.context))


at_hand: dict[int, Client] = {}
"""A block's clients, by their messages' ``id``, while it is answered: what they have looked up stays."""


def client_of(message: Message, context: Context) -> Client:
    """Return the client that has been sent a message."""
    return at_hand.get(id(message)) or Client(message, context)
