"""`PerClient`: one flat vector for each client, kept by the server."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from florets.strategies.core import FloatArray


@dataclass(eq=False)
class PerClient(MutableMapping[str, FloatArray]):
    """A vector for each client by its key: a part of a strategy's state, so that clients keep nothing.

    Used as a dictionary. Values are float64; they are kept in float32 where that holds them exactly, as it does what
    came from clients, and otherwise as they are.

    Attributes
    ----------
    vectors
        As they are kept.
    """

    vectors: dict[str, NDArray[np.floating]] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> Self:
        # Vectors are replaced, never changed: a copy of a strategy's state can share them.
        return type(self)(dict(self.vectors))

    def __getitem__(self, key: str) -> FloatArray:
        return self.vectors[key].astype(np.float64)

    def __setitem__(self, key: str, vector: FloatArray) -> None:
        narrow = vector.astype(np.float32)
        self.vectors[key] = narrow if np.array_equal(narrow, vector) else vector

    def __delitem__(self, key: str) -> None:
        del self.vectors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)
