"""Losses as algorithms get them: with those of absent clients (`memory`), and on more models (`probes`)."""

from dataclasses import dataclass, replace

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Models
from florets.strategies.base.round import Round
from florets.strategies.settings import Weighted
from florets.task.keys import setting
from florets.task.wire.replies import Losses


@dataclass(frozen=True)
class ByLosses(Weighted):
    """Keys of grouping by losses: which clients' losses count, on which models."""

    outlier_loss: float | None = setting(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst; null: reject none",
        least=1,
        note="null rejects nobody",
    )
    memory: bool = setting(False, "group the latest loss vectors of all clients seen, not only this round's")
    probes: int = setting(0, "additional random models, never trained, on which loss vectors are also taken", least=0)

    @property
    def extra_models(self) -> int:
        return self.probes


class Memory(Layer):
    """Adds the latest losses of all other clients seen, so that small groups are found by more rows."""

    name = "memory"
    State = dict

    def losses(self, replies: Replies[Losses], r: Round, everybody: bool) -> Replies[Losses]:
        if not everybody:
            return replies
        r.require(replies, "loss vector")
        known: dict[str, Losses] = self.kept(r)
        fresh, present = dict(replies.ok), {client.key for client in r.participants}
        old = {key: own for key, own in known.items() if key not in present}
        known |= {key: replace(own, kept=False) for key, own in fresh.items()}
        return replace(replies, ok=tuple(sorted({**old, **fresh}.items())))


@dataclass
class Drawn:
    """The probes; None before round 1."""

    models: Models | None = None


class Probes(Layer):
    """Uses the last initial models as probes, and sends them to clients after the others.

    Source: CLoVE, section 4: more random models than are trained tell clients apart.
    """

    name = "probes"
    under_noise = True
    State = Drawn

    def __init__(self, count: int) -> None:
        self.count = count

    def begin(self, r: Round) -> None:
        """Take the last initial models out of the round and keep them."""
        kept: Drawn = self.kept(r)
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
        kept: Drawn = self.kept(r)
        assert kept.models is not None
        return models.replaced(np.concatenate([models.bank, kept.models.bank]))
