"""Per-FedAvg's clients: training for the loss after one gradient step."""

from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module, Parameter

from florets import Objective, Term, Update
from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.session import State
from florets.client_app.training import gradient_of, trained
from florets.task.randomness import Purpose
from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.training.modules import torch_random
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.codec import pack

Parameters = dict[str, Tensor]


class Adaptation(Term):
    """Takes each step's gradient not at theta, but at theta - alpha grad L(theta; D), and moves theta by it.

    With g the gradient there, on the step's own batch D', the optimiser is handed g, or with `exact` the gradient of
    the loss after the adaptation, (I - alpha H(theta; D'')) g, by an exact product with the Hessian. D and D'' are
    drawn for each step, without replacement and apart from D', whose order is that of a training without this term:
    with alpha = 0 both trainings are equal to the bit. Buffers, such as running statistics, follow D' alone.

    D and D'' have the training's batch size (or all samples, if fewer); `rng` draws them, and seeds dropout on
    them.

    Source: Fallah et al. 2020 (Per-FedAvg, arXiv 2002.07948), Alg. 1 (the local steps), and its first-order variant.
    Deviation: the paper approximates the product by a difference of gradients.
    """

    def __init__(
        self,
        alpha: float,
        x: Tensor,
        y: Tensor,
        loss: str,
        training: Training,
        rng: np.random.Generator,
        exact: bool = False,
    ) -> None:
        if not alpha >= 0:
            raise ValueError(f"alpha={alpha!r} of an adaptation must be at least 0.")
        self.alpha, self.exact = alpha, exact
        self._x, self._y, self._loss = x, y, loss
        self._size, self._rng = min(training.batch_size, len(x)), rng
        self._module: Module | None = None
        self._parameters: dict[str, Parameter] = {}
        self._before: Parameters = {}

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Name the parameters that are trained."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._module, self._parameters = module, {names[id(p)]: p for p in parameters}

    def before_step(self) -> None:
        """Move the parameters to where the step's gradient is taken."""
        self._before = {name: p.detach().clone() for name, p in self._parameters.items()}
        taken, _ = self._gradient(self._before)
        count(gradients=self._size)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.sub_(taken[name], alpha=self.alpha)

    def add_gradient(self) -> None:
        """Move the parameters back, and correct their gradients where the Hessian counts."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(self._before[name])
        if not self.exact:
            return
        found = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in self._parameters.items()}
        # Not torch.func: its first call in a process imports PyTorch's compiler, 2 s of processor time, and on a real
        # node every message has a new process.
        taken, at = self._gradient(self._before, graph=True)
        product = torch.autograd.grad(
            list(taken.values()), list(at.values()), list(found.values()), materialize_grads=True
        )
        # Back through a gradient are twice as many passes.
        count(gradients=2 * self._size)
        for parameter, part in zip(self._parameters.values(), product, strict=True):
            if parameter.grad is not None:
                parameter.grad.sub_(part, alpha=self.alpha)

    def _gradient(self, parameters: Parameters, graph: bool = False) -> tuple[Parameters, Parameters]:
        """Return the gradient of the mean loss on a batch that is drawn now, and where it was taken."""
        drawn = torch.from_numpy(self._rng.choice(len(self._x), self._size, replace=False)).to(self._x.device)
        x, y = self._x[drawn], self._y[drawn]
        at = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
        if (module := self._module) is None:
            raise RuntimeError("an adaptation has no model before begin()")
        # Copies of the buffers: what this batch does to running statistics is forgotten.
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with torch_random(self._rng):
            outputs = functional_call(module, {**at, **buffers}, (x,))
        loss = per_sample_losses(outputs, targets_of(x, y, self._loss), self._loss).mean()
        taken = torch.autograd.grad(loss, list(at.values()), create_graph=graph, materialize_grads=True)
        return dict(zip(at, taken, strict=True)), at


def train_adapted(client: Client) -> RecordDict:
    """Return the model after local training, and the mean loss after the adaptations.

    Source: Fallah et al. 2020 (Per-FedAvg), Alg. 1: the clients' part.
    """
    term = Adaptation(
        client.number(kinds.ADAPTATION_STEP),
        client.data.x_train,
        client.data.y_train,
        client.loss,
        client.training,
        client.random(Purpose.ADAPTATION),
        exact=client.config.get(kinds.EXACT_HESSIAN) is True,
    )
    arrays, loss = trained(client, client.states()[0], objective=Objective((term,)))
    return pack(Update, values=arrays, train_loss=loss, num_examples=client.num_examples)


def evaluate_adapted(client: Client) -> RecordDict:
    """Test the model that came after a gradient step on this client's training data; with a step of 0 as it is."""
    alpha = client.number(kinds.ADAPTATION_STEP)
    return evaluate(client, adapted(client, client.states()[0], alpha) if alpha else None)


def adapted(client: Client, state: State, alpha: float) -> dict[str, Tensor]:
    """Return a model after one gradient step of size alpha on all of this client's training data.

    Source: Fallah et al. 2020 (Per-FedAvg): what a client does with the common model before it uses it.
    """
    gradients, _ = gradient_of(client, state, Objective())
    values = client.names(kinds.UNTRAINED)
    return {
        name: torch.from_numpy(
            state[name].numpy() - step.dtype.type(alpha) * step
            if step.dtype.kind == "f" and name not in values
            else step
        )
        for name, step in gradients.items()
    }
