"""Per-FedAvg: one model that is good after each client has adapted it by a gradient step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module, Parameter

from florets import Objective, OneModel, Plan, Round, State, Steps, Strategy, Term, Update, setting
from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.training import local_gradient, trained
from florets.strategies.base.round import Tests
from florets.strategies.settings import MODELS_ALONE
from florets.task.randomness import Purpose
from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.training.modules import torch_random
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.replies import read_update

TRAIN_ADAPTED = "florets.zoo.per_fedavg:train_adapted"
EVALUATE_ADAPTED = "florets.zoo.per_fedavg:evaluate_adapted"


@dataclass(frozen=True)
class PerFedAvgSettings(OneModel):
    """One model, trained to be good after one gradient step on a client's data."""

    alpha: float = setting(
        0.01, "size of the step by which a client adapts the model, in training; 0: FedAvg", least=0
    )
    test_alpha: float | None = setting(
        None,
        "size of the step before a test; null: alpha. With alpha=0 it is the reference: FedAvg and one step",
        least=0,
    )
    exact_hessian: bool = setting(
        False, "train by the exact gradient after adaptation, with a Hessian product in each step; false: first order"
    )

    adapts: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_ALONE


class PerFedAvg(Strategy[PerFedAvgSettings, State]):
    """Train one model for the clients' mean loss after one gradient step of size alpha on each one's own data.

    Personal is what a client makes of the model by that step, on all of its training data; it is tested and thrown
    away, so that nobody keeps anything, and one model goes down and one up, as in FedAvg. The run's saved model is
    the one before the step. A step of training takes gradients on two batches, on four times as many samples with
    `exact_hessian` as FedAvg's does (a Hessian product counts as two); a test takes a pass over the training data.

    Source: Fallah et al. 2020 (Per-FedAvg, arXiv 2002.07948), Alg. 1 with the exact Hessian product (the paper's
    HF approximates it), and its first-order variant; beta is the run's learning rate. Defaults: alpha 0.01, as in
    a public reimplementation, whose beta is 0.001. Deviation: the gradient goes to the run's optimiser, which is
    the paper's step with train=sgd alone; local steps are taken in shuffled epochs, and the server's mean is
    weighted by examples, so that alpha = 0 is FedAvg.
    """

    Settings = PerFedAvgSettings

    def round(self, r: Round) -> Steps:
        """Let every participant train model 0 for the loss after its adaptation."""
        settings = {
            **r.averaging.settings,
            kinds.ADAPTATION_STEP: self.settings.alpha,
            kinds.EXACT_HESSIAN: self.settings.exact_hessian,
        }
        requests = [r.request_custom(TRAIN_ADAPTED, client, r.models.one(0), settings) for client in r.participants]
        updates = yield Plan(requests, lambda _, content: read_update(content, r.models.layout, 0))
        return r.average(updates)

    def test(self, r: Round) -> Tests:
        """Let every tester that has taken part adapt the model, and test what comes of it."""
        alpha = self.settings.alpha if self.settings.test_alpha is None else self.settings.test_alpha
        models = dict.fromkeys(self.assignment, r.models.one(0))
        return r.test(models, {kinds.ADAPTATION_STEP: alpha}, handler=EVALUATE_ADAPTED)


def train_adapted(client: Client) -> RecordDict:
    """Return the model after local training, and the mean loss after the adaptations (Alg. 1: the clients' part)."""
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
    """Test the model after one gradient step on all of this client's training data; with a step of 0 as it is."""
    alpha, state = client.number(kinds.ADAPTATION_STEP), client.states()[0]
    if not alpha:
        return evaluate(client, None)
    gradients, _ = local_gradient(client, state, Objective())
    values = client.names(kinds.UNTRAINED)
    adapted = {
        name: torch.from_numpy(
            state[name].numpy() - step.dtype.type(alpha) * step
            if step.dtype.kind == "f" and name not in values
            else step
        )
        for name, step in gradients.items()
    }
    return evaluate(client, adapted)


class Adaptation(Term):
    """Takes each step's gradient not at theta, but at theta - alpha grad L(theta; D), and moves theta by it.

    With g the gradient there, on the step's own batch D', the optimiser is handed g, or with `exact` the gradient of
    the loss after the adaptation, (I - alpha H(theta; D'')) g, by an exact product with the Hessian. D and D'' are
    drawn by `rng` for each step, of the training's batch size, without replacement and apart from D', whose order is
    that of a training without this term: with alpha = 0 both trainings are equal to the bit. Buffers, such as running
    statistics, follow D' alone.

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
        self.alpha, self.exact = alpha, exact
        self._x, self._y, self._loss = x, y, loss
        self._size, self._rng = min(training.batch_size, len(x)), rng
        self._module: Module | None = None
        self._parameters: dict[str, Parameter] = {}
        self._before: dict[str, Tensor] = {}

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Name the parameters that are trained."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._module, self._parameters = module, {names[id(p)]: p for p in parameters}

    def before_step(self) -> None:
        """Move the parameters to where the step's gradient is taken."""
        self._before = {name: p.detach().clone() for name, p in self._parameters.items()}
        taken, _ = self._gradient()
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
        taken, at = self._gradient(graph=True)
        product = torch.autograd.grad(
            list(taken.values()), list(at.values()), list(found.values()), materialize_grads=True
        )
        # Back through a gradient are twice as many passes.
        count(gradients=2 * self._size)
        for parameter, part in zip(self._parameters.values(), product, strict=True):
            if parameter.grad is not None:
                parameter.grad.sub_(part, alpha=self.alpha)

    def _gradient(self, graph: bool = False) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradient of the mean loss on a batch that is drawn now, and the parameters it was taken at."""
        drawn = torch.from_numpy(self._rng.choice(len(self._x), self._size, replace=False)).to(self._x.device)
        x, y = self._x[drawn], self._y[drawn]
        at = {name: value.detach().clone().requires_grad_() for name, value in self._before.items()}
        assert self._module is not None
        # Copies of the buffers: what this batch does to running statistics is forgotten.
        buffers = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        with torch_random(self._rng):
            outputs = functional_call(self._module, {**at, **buffers}, (x,))
        loss = per_sample_losses(outputs, targets_of(x, y, self._loss), self._loss).mean()
        taken = torch.autograd.grad(loss, list(at.values()), create_graph=graph, materialize_grads=True)
        return dict(zip(at, taken, strict=True)), at
