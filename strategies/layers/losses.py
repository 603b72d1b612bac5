"""Losses and updates as algorithms get them: without outliers, with absent clients' losses, and on probes."""

from dataclasses import dataclass, replace

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Models
from florets.strategies.base.outliers import without_far_losses, without_outliers
from florets.strategies.base.round import Round
from florets.strategies.core.outliers import loss_scale
from florets.strategies.settings import Weighted
from florets.task.keys import setting
from florets.task.wire.replies import Losses, Update


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


@dataclass
class Seen:
    """Largest `loss_scale` of the run so far."""

    scale: float = 0.0


class LossOutliers(Layer):
    """Rejects loss vectors far above the others'; `factor` None: none."""

    name = "loss outliers"
    State = Seen

    def __init__(self, factor: float | None) -> None:
        self.factor = factor

    def losses(self, replies: Replies[Losses], r: Round, everybody: bool) -> Replies[Losses]:
        # With one model there is nothing to group by, and nobody to be kept from it.
        if self.factor is None or not replies.ok or len(replies.ok[0][1].losses) == 1:
            return replies
        seen: Seen = self.kept(r)
        if everybody:
            seen.scale = max(seen.scale, loss_scale(np.stack([reply.losses for _, reply in replies.ok])))
        remedy = " (strategy.outlier_loss; null groups a client whose data are in another unit)"
        return without_far_losses(replies, r, self.factor, seen.scale, remedy)


class UpdateOutliers(Layer):
    """Rejects updates whose values are far above the others' and the models'."""

    name = "update outliers"

    def updates(self, replies: Replies[Update], r: Round) -> Replies[Update]:
        return without_outliers(replies, r)


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
