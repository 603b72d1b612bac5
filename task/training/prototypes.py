"""FedProto's and FedPAC's term that holds features near class prototypes."""

import torch
from torch import Tensor

from florets.task.training.features import taken
from florets.task.training.objective import Batch, Term


class NearPrototypes(Term):
    """A term lambda times the mean square of (feature - global prototype of the sample's class).

    The mean is over the batch and the entries of a feature; samples of a class without a prototype add nothing to it.

    Parameters
    ----------
    weight
        lambda, above 0.
    prototypes, classes
        (P, D) prototypes, and the class of each, (P,).
    num_classes
        C.
    found
        Where the features of each step's forward pass are recorded, see `florets.task.training.features.head_inputs`.

    Raises
    ------
    ValueError
        If lambda is not above 0, or a class is none of 0 to C - 1.

    Source: Tan et al. 2022 (FedProto, arXiv 2105.00243), Eq. 7 and the clients' part of Alg. 1.
    """

    def __init__(
        self, weight: float, prototypes: Tensor, classes: Tensor, num_classes: int, found: list[Tensor]
    ) -> None:
        if not weight > 0:
            raise ValueError(f"lambda={weight!r} of a term towards prototypes must be above 0.")
        if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < num_classes:
            raise ValueError(f"prototypes of classes {classes.tolist()}: the task has 0 to {num_classes - 1}.")
        self.weight, self._found = weight, found
        self._prototypes = torch.zeros(num_classes, prototypes.shape[1], device=prototypes.device)
        self._prototypes[classes] = prototypes
        self._known = torch.zeros(num_classes, 1, device=prototypes.device)
        self._known[classes] = 1.0

    def value(self, batch: Batch) -> Tensor:
        """Return the term on one batch."""
        features = taken(self._found)
        if features.shape[1] != self._prototypes.shape[1]:
            raise ValueError(f"prototypes have {self._prototypes.shape[1]} entries, features {features.shape[1]}.")
        away = (features - self._prototypes[batch.y]) * self._known[batch.y]
        return self.weight * away.square().mean()
