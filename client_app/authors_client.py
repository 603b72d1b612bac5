"""`florets.Client`: what a handler of an author's own works with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from florets.client_app.client import Client as Received
from florets.client_app.training import (
    Number,
    local_gradient,
    model_losses,
    packed,
    reply,
    result_on,
    trained,
)
from florets.task.randomness import Purpose
from florets.task.training.loop import gradient, steps_of, training_batches
from florets.task.training.losses import Evaluated
from florets.task.training.modules import load
from florets.task.training.objective import Objective
from florets.task.wire import kinds

State = Mapping[str, Tensor]
"""A model: its entries by the names of the module's state dict, on the CPU."""


@dataclass(frozen=True)
class Trained:
    """A model after local training, its mean training loss, and the steps that were taken."""

    model: dict[str, Tensor]
    loss: float
    steps: int


class Client(Received):
    """One client that has been sent one message: its data, the models that came, and what can be done with them.

    A handler is called with one of these for each message. Nothing is remembered until the next message: what a
    client is to know again, the server keeps and sends. Models are mappings of names to tensors on the CPU, which are
    shared with others: make new ones, and do not change them in place.

    Beside the methods below there are `key`, `num_examples`, `server_round`, `is_simulated`, `config` (settings that
    came with the message, those of the strategy among them), `training` (the run's settings of local training in this
    round), `data` (tensors `x_train`, `y_train`, `x_test`, `y_test`) and `module`, the task's model: one for all
    messages of the process, so load all of its state before it is used.
    """

    @property
    def num_outputs(self) -> int:
        """Outputs of a model of the task: the number of classes, or 1 for values."""
        return self.task.num_outputs

    def layers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the name prefixes of the model's body and of its head; see the key `task.head_layers`."""
        return self.task.body_and_head(self.module)

    def model(self, name: str = kinds.ARRAYS) -> dict[str, Tensor]:
        """Return the model that came, or what the strategy's method sent under a name; ValueError without one."""
        return dict(self.states(name)[0])

    def models(self) -> list[dict[str, Tensor]]:
        """Return all models that came, in their order."""
        return [dict(state) for state in self.states()]

    def random(self, purpose: Purpose | str = "handler") -> np.random.Generator:
        """Return the generator of one of this client's draws in this round: the same at every call of one purpose."""
        return super().random(purpose)

    def train(
        self, model: State | None = None, *, objective: Objective | None = None, draws: str = "", **changed: Any
    ) -> Trained:
        """Train a model on this client's data, as the run has it.

        Parameters
        ----------
        model
            Where training starts; None: the model that came.
        objective
            What is minimised; None: what the message asks for, mostly the plain mean loss.
        draws
            A name for the order of the samples; trainings under one name draw alike, without one as plain training.
        **changed
            Settings of local training that differ from the run's: ``local_epochs=2``, ``learning_rate=0.1``.

        Raises
        ------
        ValueError
            If a setting is out of its range.
        """
        training = self.training.changed(**changed)
        start = self.model() if model is None else dict(model)
        purpose = draws or Purpose.LOCAL_TRAINING
        arrays, loss = trained(self, start, purpose, objective=objective, training=training)
        return Trained(_tensors(arrays), loss, self.steps(**changed))

    def steps(self, **changed: Any) -> int:
        """Return the number of steps that `train` takes with these settings changed."""
        return steps_of(self.module, self.num_examples, self.training.changed(**changed))

    def batches(self, **changed: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and targets of each step that `train` takes, in its order, for a loop of one's own."""
        training, rng = self.training.changed(**changed), self.random(Purpose.LOCAL_TRAINING)
        return training_batches(self.module, self.data.x_train, self.data.y_train, training, rng)

    def gradient(
        self, model: State | None = None, x: Tensor | None = None, y: Tensor | None = None
    ) -> tuple[dict[str, Tensor], float]:
        """Return the gradient of the mean loss and that loss, on a batch or on all of the training data.

        Entries that no gradient moves (running statistics, counters) have zeros.
        """
        start = self.model() if model is None else dict(model)
        if x is None or y is None:
            arrays, loss = local_gradient(self, start)
        else:
            module = self.module
            load(module, self.on_device(start))
            arrays, loss = gradient(module, x, y, self.loss, None, self._draws)
        return _tensors(arrays), loss

    def losses(self) -> NDArray[np.float64]:
        """Return the mean training loss of each model that came, (K,)."""
        return model_losses(self)

    def test(self, model: State | None = None) -> Evaluated:
        """Return `loss` and `accuracy` (None without classes) of a model on the test set; None: the one that came."""
        arrays = None if model is None else {name: value.numpy() for name, value in model.items()}
        return result_on(self, "test", arrays)

    def reply(self, model: "Trained | State | None" = None, /, **beside: Any) -> RecordDict:
        """Return a handler's reply; the number of examples is in it anyhow.

        Parameters
        ----------
        model
            The model after training, as `train` returns it or by names; the latter needs ``train_loss=``, and entries
            that it leaves out are those that came. None in answers to `Round.query`.
        **beside
            Numbers, and with a model further mappings of its names and shapes, in which entries that are left out
            are zeros; in answers to `Round.query` arrays.

        Raises
        ------
        ValueError
            If a value is none of these, or a model comes without its training loss.
        """
        metrics: dict[str, Number] = {kinds.NUM_EXAMPLES: self.num_examples}
        others: dict[str, ArrayRecord] = {}
        arrays: dict[str, NDArray[Any]] | None = None if model is None else {}
        if isinstance(model, Trained):
            arrays, metrics[kinds.TRAIN_LOSS] = _arrays(model.model, self.model()), model.loss
        elif model is not None:
            arrays = _arrays(model, self.model())
            if kinds.TRAIN_LOSS not in beside:
                raise ValueError(f"a model must be returned with its training loss: give {kinds.TRAIN_LOSS}=")
        for name, value in beside.items():
            if isinstance(value, Mapping):
                others[name] = packed(
                    _arrays(value, {key: torch.zeros_like(own) for key, own in self.model().items()})
                )
            elif isinstance(value, Tensor | np.ndarray) and value.ndim:
                if model is not None:
                    raise ValueError(
                        f"{name}: with a model, return numbers and mappings by its names, not a single array"
                    )
                arrays = {**(arrays or {}), name: np.asarray(torch.as_tensor(value).cpu(), dtype=np.float32)}
            else:
                number = value.item() if hasattr(value, "item") else value
                if not isinstance(number, int | float):
                    raise ValueError(f"{name}: a reply holds numbers and arrays, not a {type(value).__name__}")
                metrics[name] = int(number) if isinstance(number, bool) else number
        return reply(None if arrays is None else packed(arrays), metrics, **others)

    @cached_property
    def _draws(self) -> np.random.Generator:
        """Of what the model itself draws, as dropout does, in a loop of the author's own."""
        return self.random("batches")


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    # Copied: they may be the memory of the process's one module.
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def _arrays(model: State, others: State) -> dict[str, NDArray[Any]]:
    """Return a model's entries in the order and of the types of `others`, which stand for those that it lacks."""
    if unknown := sorted(model.keys() - others.keys()):
        raise ValueError(f"{unknown[0]!r} is not an entry of the model; its entries are {', '.join(others)}")
    found = {name: torch.as_tensor(model.get(name, other)).detach().cpu() for name, other in others.items()}
    return {name: value.to(others[name].dtype).numpy() for name, value in found.items()}
