"""The messages of CFL-GP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire import Layout
from florets.task.wire.codec import Tensor
from florets.task.wire.replies import Update

TRAIN_PROBE = "florets.strategies.cfl_gp.client:train_probe"


@dataclass(frozen=True, kw_only=True)
class ProbeUpdate(Update):
    """Reply to `TRAIN_PROBE`: `profile` (d,) is the gradient on the probe, or what local training changes in it."""

    profile: Annotated[npt.NDArray[np.float32], Tensor("d", name="profile", record="profile")]

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The profile vector."""
        return self.profile


def coordinates(
    layout: Layout, layers: Sequence[str], ratio: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return which entries of a model's flat vector make a client's profile vector, int64 (d_hat,), rising.

    Client and server draw the same, so that no index travels: one in `ratio` trained parameters of the `layers`,
    which are name prefixes, none for all.

    Source: CFL-GP, App. E.1 (random coordinates, drawn once) and E.2 (chosen layers).
    """
    if not ratio >= 1:
        raise ValueError(f"compression={ratio} is below 1: it is the number of entries for each one that is sent.")
    wanted = layout.trained
    if layers:
        wanted &= layout.mask(layers)
    places = np.flatnonzero(wanted)
    if not len(places):
        raise ValueError(f"profile_layers={list(layers)} hold no parameter: name a layer with weights.")
    if ratio > len(places):
        raise ValueError(
            f"compression={ratio:g}: one in that many of {len(places)} parameters is none; use at most "
            f"{len(places)}, better much less."
        )
    if ratio == 1:
        return places
    return np.sort(rng.choice(places, size=round(len(places) / ratio), replace=False))
