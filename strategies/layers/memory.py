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

    def losses(
        self, replies: Replies[Losses], limit: float, r: Round, everybody: bool
    ) -> tuple[Replies[Losses], float]:
        """Return the round's losses with the latest ones of absent clients."""
        if not everybody:
            return replies, limit
        known: Known = self.kept(r)
        fresh = dict(replies.ok)
        old = {key: own for key, own in known.latest.items() if key not in fresh}
        known.latest = {**old, **{key: replace(own, kept=False) for key, own in fresh.items()}}
        return replace(replies, ok=tuple(sorted({**old, **fresh}.items()))), limit
