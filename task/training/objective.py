"""The objective that local training minimises: the loss, weights of samples, terms beside it, and frozen layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module, Parameter

from florets.task.training.modules import parameters


@dataclass(frozen=True)
class Batch:
    """The samples of one step: the model in training, inputs, targets, and its outputs with their graph."""

    module: Module
    x: Tensor
    y: Tensor
    outputs: Tensor


class Term:
    """A term beside the loss, of one training at a time.

    A subclass overrides `value`, or `add_gradient` where the gradient has a closed form and needs no graph.
    """

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Take what the term needs of the model before its first step; `parameters` are those that are trained."""

    def before_step(self) -> None:
        """Prepare a step of local training; a term that moves the parameters moves them back in `add_gradient`."""

    def value(self, batch: Batch) -> Tensor | None:
        """Return the term on one batch, a scalar that is differentiated together with the loss; None: nothing."""
        return None

    def add_gradient(self) -> None:
        """Add the term's gradient to the parameters' own."""


class Proximal(Term):
    """FedProx's term mu/2 ||theta - theta_start||^2, with mu above 0.

    Source: Li et al. 2020, Alg. 2.
    """

    def __init__(self, mu: float) -> None:
        if not mu > 0:
            raise ValueError(f"proximal_mu={mu!r} must be above 0.")
        self.mu = mu
        self._pairs: list[tuple[Parameter, Tensor]] = []

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Remember where training starts."""
        self._pairs = [(p, p.detach().clone()) for p in parameters]

    def add_gradient(self) -> None:
        """Add mu (theta - theta_start)."""
        for parameter, centre in self._pairs:
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - centre, alpha=self.mu)


class Anchored(Proximal):
    """A term mu/2 ||theta - anchor||^2 towards another model than the one that training starts from.

    `anchor` holds the other model's entries, by their names in the state dict.

    Source: Zeng et al. 2023 (StoCFL), the clients' objective.
    """

    def __init__(self, mu: float, anchor: Mapping[str, Tensor]) -> None:
        if not mu > 0:
            raise ValueError(f"mu={mu!r} of a term towards another model must be above 0.")
        super().__init__(mu)
        self._anchor = anchor

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Look up the anchor's value of each parameter."""
        self._pairs = [(p, self._anchor[name].to(p.device)) for name, p in _named(module, parameters)]


class LinearTerm(Term):
    """A term <direction, theta>: the direction is added to every gradient.

    Its entries are by their names in the state dict; parameters without one are left as they are.

    Source: Karimireddy et al. 2020 (SCAFFOLD), eq. (3), with c - c_i as the direction.
    """

    def __init__(self, direction: Mapping[str, Tensor]) -> None:
        self._direction = direction
        self._pairs: list[tuple[Parameter, Tensor]] = []

    def begin(self, module: Module, parameters: Sequence[Parameter]) -> None:
        """Look up each parameter's part of the direction."""
        parts = [(p, self._direction.get(name)) for name, p in _named(module, parameters)]
        self._pairs = [(p, part.to(p.device)) for p, part in parts if part is not None]

    def add_gradient(self) -> None:
        """Add the direction."""
        for parameter, part in self._pairs:
            if parameter.grad is not None:
                parameter.grad.add_(part)


def _named(module: Module, parameters: Sequence[Parameter]) -> list[tuple[str, Parameter]]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [(names[id(parameter)], parameter) for parameter in parameters]


@dataclass(frozen=True)
class Objective:
    """What one client minimises: mean of w_i loss_i, plus the terms, over the layers that are not frozen.

    Parameters
    ----------
    terms
        See `Term`.
    weights
        Weight of each of the client's samples, (n,), on the data's device; None: 1 each. They are not normalised.
    frozen
        Name prefixes of layers that stay as they came, their running statistics included.
    """

    terms: tuple[Term, ...] = ()
    weights: Tensor | None = None
    frozen: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether this is the mean loss over all layers and nothing else."""
        return self.weights is None and not self.terms and not self.frozen

    @property
    def proximal_mu(self) -> float | None:
        """Factor of the proximal term, 0 without one; None where there is anything else beside the plain loss."""
        if self.weights is not None or self.frozen or len(self.terms) > 1:
            return None
        term = self.terms[0] if self.terms else None
        return 0.0 if term is None else term.mu if type(term) is Proximal else None

    def begin(self, module: Module, num_samples: int) -> list[Parameter]:
        """Return the parameters to be trained, after the terms have seen them."""
        if self.weights is not None and self.weights.shape != (num_samples,):
            raise ValueError(
                f"weights of shape {tuple(self.weights.shape)}: give one for each of {num_samples} samples."
            )
        trained = [p for p in parameters(module) if p.requires_grad]
        for term in self.terms:
            term.begin(module, trained)
        return trained

    def before_step(self) -> None:
        """Let the terms prepare a step of local training."""
        for term in self.terms:
            term.before_step()

    def beside(self, loss: Tensor, batch: Batch, fraction: float = 1.0) -> Tensor:
        """Return the loss of a batch with the terms' values added, each times `fraction`."""
        for term in self.terms:
            if (value := term.value(batch)) is not None:
                loss = loss + fraction * value
        return loss

    def add_gradients(self) -> None:
        """Add the gradients of the terms that need no graph."""
        for term in self.terms:
            term.add_gradient()


PLAIN = Objective()
"""The mean loss alone."""
