"""Memory: the latest losses of absent clients."""

from dataclasses import dataclass, field, replace

from florets.strategies.base.exchange import Replies
from florets.strategies.base.layer import Layer
from florets.strategies.base.round import Round
from florets.task.wire.replies import Losses


@dataclass
class Known:
    """Latest losses of each client seen, by key."""

    latest: dict[str, Losses] = field(default_factory=dict)


class Memory(Layer):
    """Adds the latest losses of all other clients seen, so that small groups are found by more rows."""

    name = "memory"
    State = Known

    def begin(self, r: Round) -> None:
        """Forget losses once groups are frozen: if they are opened again, the models have moved on."""
        if r.strategy.phase == "stable":
            self.kept(r).latest = {}

    def losses(
        self, replies: Replies[Losses], limit: float, r: Round, everybody: bool
    ) -> tuple[Replies[Losses], float]:
        """Return the round's losses with the latest ones of absent clients.

        A participant whose losses were lost is not among them: it sits the round out.
        """
        if not everybody:
            return replies, limit
        r.require(replies, "loss vector")
        known: Known = self.kept(r)
        fresh, present = dict(replies.ok), {client.key for client in r.participants}
        old = {key: own for key, own in known.latest.items() if key not in present}
        known.latest |= {key: replace(own, kept=False) for key, own in fresh.items()}
        return replace(replies, ok=tuple(sorted({**old, **fresh}.items()))), limit
