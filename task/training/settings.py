"""`Training`: local training as it is configured, as it travels in messages, and as the client's loop takes it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import ceil, cos, pi
from typing import TYPE_CHECKING, Any, Literal, Self

from florets.task.keys import as_declared, range_problems, setting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Optimizer = Literal["adam", "sgd"]
Solver = Literal["sgd", "newton"]
Quantise = Literal["none", "round", "truncate"]
MOST_DECIMALS = 15
"""Decimals that a value may be rounded to: float64 has no more."""
"""Ways to round what a client sends (`client_app.training.quantise`)."""

OF_STEPS = (
    *("learning_rate", "batch_size", "optimizer", "momentum", "weight_decay"),
    *("schedule", "schedule_rounds", "schedule_factor"),
)
"""Keys of gradient steps: Newton's have no use for them."""
BIAS_RIDGE = 0.01
"""Fraction of `train.ridge` that a bias gets: enough to keep it finite where a client has records of one class."""
_ALWAYS = ("learning_rate", "local_epochs", "batch_size", "optimizer", "momentum", "weight_decay")
"""Keys that travel in every message, because every training follows them; the others where they are set."""


@dataclass(frozen=True)
class Training:
    """Local training: what a client does in one round.

    A key is declared here and used where the training happens; it then exists in the configuration (`train.*`), in
    messages (with hyphens) and in `florets.Client.training`, with one check of its range.
    """

    learning_rate: float = setting(0.01, "step size", above=0)
    local_epochs: float = setting(
        1.0, "passes over the client's data in one round; 0.5: half of an epoch's steps", above=0, cap="max-epochs"
    )
    batch_size: int = setting(100, "samples per step", least=1, cap="max-batch")
    optimizer: Optimizer = setting("adam", "of torch.optim; created anew for every round")
    momentum: float = setting(0.0, "momentum of sgd", least=0, below=1, needs="train.optimizer=sgd")
    weight_decay: float = setting(0.0, "L2 penalty", least=0)
    solver: Solver = setting(
        "sgd",
        "sgd: steps of the optimizer; newton: damped Newton steps of linear models (squared error, cross-entropy) of "
        "tables, one for each local epoch, without a learning rate; other models train by sgd",
    )
    ridge: float = setting(
        1.0,
        "with solver=newton the L2 penalty of a model, ridge / 2 |weights|^2, on the sum over records of half "
        "squared errors or cross-entropies",
        least=0,
    )
    local_steps: int | None = setting(
        None,
        "steps in one round, for any number of samples; null: local_epochs counts",
        least=1,
        cap="max-steps",
    )
    schedule: Literal["constant", "exponential", "cosine_restarts"] = setting(
        "constant", "learning rate over the rounds, of clients and of the server's gradient step"
    )
    schedule_rounds: int = setting(
        10, "rounds from one start to the next", least=1, needs="train.schedule=cosine_restarts"
    )
    schedule_factor: float = setting(0.99, "factor of a round", least=0, most=1, needs="train.schedule=exponential")

    @property
    def is_gradient_descent(self) -> bool:
        """Whether a step moves the model by the learning rate times the gradient, and by nothing else."""
        return self.optimizer == "sgd" and self.momentum == 0 and self.weight_decay == 0

    def takes_full_steps(self, num_samples: int) -> bool:
        """Return whether every step is plain gradient descent on all samples, which needs no draw."""
        return self.is_gradient_descent and self.batch_size >= num_samples > 0

    @property
    def has_closed_form(self) -> bool:
        """Whether the minimum of a proximal problem can stand for its steps: nothing shrinks them."""
        return self.weight_decay == 0

    def penalty(self, is_bias: "npt.NDArray[np.bool_]") -> "npt.NDArray[np.float64]":
        """Return the ridge of each parameter (R,) of a linear model."""
        return self.ridge * (~is_bias + BIAS_RIDGE * is_bias)

    def num_steps(self, batches: int) -> int:
        """Return the steps of one local training, where an epoch has so many batches."""
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return self.local_steps or max(1, ceil(self.local_epochs * batches - 1e-9))

    def drawing(self, num_samples: int) -> tuple[float, int]:
        """Return the rate at which samples are drawn for batches of the same mean size, and the number of steps."""
        batches = max(1, ceil(num_samples / self.batch_size))
        return min(1.0, self.batch_size / max(1, num_samples)), self.num_steps(batches)

    def num_passes(self, num_samples: int) -> int:
        """Return how many gradients of one sample a local training takes."""
        batch = min(self.batch_size, num_samples)
        return self.num_steps(ceil(num_samples / batch)) * batch

    def rate_factor(self, server_round: int) -> float:
        """Return what the schedule multiplies the learning rate by in a round, from 1; 0 counts as the first.

        Source: cosine_restarts: Loshchilov and Hutter 2016, as in CFL-GP, App. F.6.
        """
        t = max(server_round - 1, 0)
        if self.schedule == "exponential":
            return float(self.schedule_factor**t)
        if self.schedule == "cosine_restarts":
            return (1 + cos(pi * (t % self.schedule_rounds) / self.schedule_rounds)) / 2
        return 1.0

    def in_round(self, server_round: int) -> Self:
        """Return the training of one round, at that round's learning rate."""
        factor = self.rate_factor(server_round)
        return self if factor == 1.0 else replace(self, learning_rate=self.learning_rate * factor)

    def changed(self, **values: Any) -> Self:
        """Return the training with other values; ValueError if one is of a wrong type or out of its range."""
        given = _steps_or_epochs(values)
        checked = _checked(type(self)(**given))
        return replace(self, **{name: getattr(checked, name) for name in given})

    def record(self) -> dict[str, Any]:
        """Return the settings of a message."""
        default, found = Training(), {}
        for name, key in KEYS.items():
            value = getattr(self, name)
            if name in _ALWAYS or value != getattr(default, name):
                found[key] = value
        return found

    @classmethod
    def received(cls, config: Mapping[str, Any]) -> "Training":
        """Return the training of a message's settings, see `changed`; a key that is not sent has its default."""
        sent = tuple(map(config.get, KEYS.values()))
        try:
            return _received(*sent)
        except TypeError:
            # A list cannot be looked up: the check says what is wrong with it.
            return _received.__wrapped__(*sent)


KEYS: Mapping[str, str] = {field.name: field.name.replace("_", "-") for field in fields(Training)}
"""Names of the fields, and those of the settings in messages."""

CAPS: Mapping[str, str] = {
    KEYS[field.name]: field.metadata["cap"] for field in fields(Training) if "cap" in field.metadata
}
"""Settings in messages that a node caps, and the cap's key in the node config (`florets.task.node_config`)."""


# All clients of a round are sent the same values; 1, 1.0 and True are different ones.
@lru_cache(maxsize=8, typed=True)
def _received(*sent: Any) -> Training:
    values = {name: value for name, value in zip(KEYS, sent, strict=True) if value is not None}
    return _checked(Training(**_steps_or_epochs(values)), "the message's config has ")


def _steps_or_epochs(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with no steps in place of 0: who trains for epochs of its own replaces the run's steps by 0."""
    return {**values, "local_steps": None} if values.get("local_steps") == 0 else values


def _checked(training: Training, start: str = "") -> Training:
    training, problems = as_declared(training)
    if problems := problems or range_problems(training):
        raise ValueError(start + " ".join(problems))
    return training
