"""Probes: random models, never trained, on which losses are also taken."""

from dataclasses import dataclass

import numpy as np

from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Models
from florets.strategies.base.round import Round


@dataclass
class Kept:
    """The probes; None before round 1."""

    models: Models | None = None


class Probes(Layer):
    """Uses the last initial models as probes, and sends them to clients after the others.

    Source: CLoVE, section 4: more random models than are trained tell clients apart.
    """

    name = "probes"
    State = Kept

    def __init__(self, count: int) -> None:
        self.count = count

    def begin(self, r: Round) -> None:
        """Take the last initial models out of the round and keep them."""
        kept: Kept = self.kept(r)
        if kept.models is None:
            wanted = r.strategy.k if isinstance(r.strategy.k, int) else 1
            if r.models.count < wanted + self.count:
                raise ValueError(
                    f"strategy.probes={self.count}: the initial arrays hold {r.models.count} models, and need "
                    f"{wanted} to train and the probes after them; pack more, or use fewer probes"
                )
            kept.models = r.models.replaced(r.models.bank[-self.count :])
            r.models = r.models.replaced(r.models.bank[: -self.count])

    def compared(self, models: Models, r: Round) -> Models:
        """Return the models followed by the probes."""
        kept: Kept = self.kept(r)
        assert kept.models is not None
        return models.replaced(np.concatenate([models.bank, kept.models.bank]))
