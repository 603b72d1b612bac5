"""Magnitude of a node's inputs, which it sends when it introduces itself: one number, rounded to one digit."""

import math
from dataclasses import dataclass

from flwr.app import ConfigRecord

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage

MAGNITUDE_KEYS = {kinds.MAGNITUDE, kinds.SCALED}
_LARGEST = 1e300


@dataclass(frozen=True)
class Magnitude:
    """Root mean square of a node's training inputs, and whether they are integers of pixels scaled to [0, 1]."""

    value: float
    scaled: bool

    def pack(self, config: ConfigRecord) -> None:
        """Write it into the settings of a reply, rounded to one significant digit."""
        config[kinds.MAGNITUDE] = float(f"{min(self.value, _LARGEST):.0e}")
        config[kinds.SCALED] = self.scaled


def read_magnitude(config: ConfigRecord) -> Magnitude | None:
    """Read what a node says of its inputs; None where it says nothing, as one with a table.

    Raises
    ------
    MalformedMessage
        If it is no number from 0, or lacks the other entry.
    """
    if not MAGNITUDE_KEYS & config.keys():
        return None
    value, scaled = config.get(kinds.MAGNITUDE), config.get(kinds.SCALED)
    if not isinstance(value, float) or not (math.isfinite(value) and value >= 0) or not isinstance(scaled, bool):
        raise MalformedMessage(f"{kinds.MAGNITUDE} must be a number from 0, with {kinds.SCALED}")
    return Magnitude(value, scaled)
