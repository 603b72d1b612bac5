"""`PersonalModels`: models of single clients, kept by the server apart from the bank."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray


@dataclass
class PersonalModels:
    """One flat model per client, by client key: part of a strategy's state, so that clients keep none.

    Attributes
    ----------
    vectors
        (R,) each, float32; float64 where the models hold integers beyond float32's.
    """

    vectors: dict[str, NDArray[np.floating]] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> "PersonalModels":
        # Vectors are replaced, never changed: a copy of a strategy's state can share them.
        return PersonalModels(dict(self.vectors))

    def of(self, key: str, start: Models) -> Models:
        """Return a client's model; one that has none yet starts from the first of `start`."""
        if key not in self.vectors:
            return start if start.count == 1 else start.replaced(start.bank[:1])
        return start.replaced(self.vectors[key][np.newaxis].astype(np.float64))

    def put(self, key: str, vector: FloatArray) -> None:
        """Keep a client's model."""
        narrow = vector.astype(np.float32)
        self.vectors[key] = narrow if np.array_equal(narrow, vector) else vector
