"""`ClientProfiles`: the clients' gradient profiles by client key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from florets.strategies.core import FloatArray
from florets.strategies.core.gradient_profile import GradientProfile


@dataclass
class ClientProfiles:
    """A `GradientProfile` whose rows are client keys, in the order in which they were first seen."""

    profile: GradientProfile
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Keys of the clients with at least one refreshed block, sorted."""
        return sorted(self.rows)

    def refresh(self, model: int, vectors: Mapping[str, NDArray[np.floating]]) -> None:
        """Take the vectors (d_hat,) of some clients on one model into its block."""
        new = [key for key in vectors if key not in self.rows]
        self.rows.update({key: len(self.rows) + place for place, key in enumerate(new)})
        self.profile.add_clients(len(new))
        rows = np.array([self.rows[key] for key in vectors], dtype=np.int64)
        self.profile.refresh(model, rows, list(vectors.values()))

    def gram(self, keys: Sequence[str]) -> FloatArray:
        """Return the inner products of some clients' profiles, in the order of the keys."""
        return self.profile.gram(np.array([self.rows[key] for key in keys], dtype=np.int64))
