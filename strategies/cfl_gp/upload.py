"""CFL-GP's memory of its clients' gradients: the profile by client key, and what its exchanges ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.strategies.cfl_gp.gradient_profile import GradientProfile
from florets.strategies.core import FloatArray, IntArray
from florets.task.randomness import Purpose, generator
from florets.task.wire import Layout, kinds
from florets.task.wire.compression import coordinates

Quantise = Literal["none", "round", "truncate"]


@dataclass(frozen=True)
class Upload:
    """What clients leave out of what they send.

    Parameters
    ----------
    compression
        d / d_hat: one coordinate in so many makes the profile, drawn once; 1 takes all.
    layers
        Name prefixes of the layers that make the profile; none: all.
    quantise, digits
        Decimals of everything that a client sends: all of them, or rounded or truncated to `digits`.
    seed
        Draws the coordinates.
    """

    compression: float = 1.0
    layers: tuple[str, ...] = ()
    quantise: Quantise = "none"
    digits: int = 2
    seed: int = 0

    @property
    def decimals(self) -> dict[str, str | int]:
        """Settings of every training message; none where all decimals are kept."""
        if self.quantise == "none":
            return {}
        return {kinds.QUANTISE: self.quantise, kinds.QUANTISE_DIGITS: self.digits}

    @property
    def settings(self) -> dict[str, object]:
        """Settings of a message with a probe."""
        own = {kinds.PROFILE_RATIO: self.compression, kinds.PROFILE_SEED: self.seed}
        return {**self.decimals, **own, kinds.PROFILE_LAYERS: list(self.layers)}

    def places(self, layout: Layout) -> IntArray:
        """Return the entries of a flat model that make the profile, (d_hat,); clients find the same ones."""
        rng = generator(self.seed, 0, Purpose.PROFILE_COORDINATES)
        return coordinates(layout, self.layers, self.compression, rng)


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
