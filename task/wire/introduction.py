"""Reply to `query.hello`: what a client says of itself, of which nothing is trusted."""

from dataclasses import dataclass
from typing import Annotated

from florets.task.wire import kinds
from florets.task.wire.codec import MAX_EXAMPLES, Flag, Number, Text
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.replies import Examples

_LONGEST_NAME = 200
_FORMULA = "=+-@"
"""A table's cell that begins with one of these is a formula to a spreadsheet, which runs when the table is opened."""
_LARGEST_MAGNITUDE = 1e300


def key_problem(key: str) -> str | None:
    """Return why a text cannot be a client's key, which goes into logs, tables and pages as it is; None where it can.

    A control character could forge lines of the log. All else that is printable is a name: (1), _x, an emoji.
    """
    if not key.strip() or len(key) > _LONGEST_NAME:
        return f"must have 1 to {_LONGEST_NAME} characters, and not blanks alone"
    if not key.isprintable():
        return "must hold printable characters only"
    if key[0] in _FORMULA:
        return f"must not begin with one of {' '.join(_FORMULA)}, which make it a formula to a spreadsheet"
    return None


def _problem(text: str) -> str | None:
    return None if text == kinds.NO_KEY else key_problem(text)


@dataclass(frozen=True)
class Magnitude:
    """Root mean square of a node's training inputs, and whether they are integers of pixels scaled to [0, 1]."""

    value: float
    scaled: bool


@dataclass(frozen=True)
class Introduction:
    """Reply to `query.hello`.

    `num_partitions` is 0 unless the node is simulated. A node with a table says nothing of its inputs' magnitude.
    """

    key: Annotated[str, Text(kinds.CLIENT_KEY, _problem)]
    num_examples: Examples
    device: Annotated[str, Text(kinds.DEVICE, _problem)]
    fingerprint: Annotated[str, Text(kinds.FINGERPRINT, _problem)]
    true_cluster: Annotated[int, Number(least=-1, most=MAX_EXAMPLES, integer=True)]
    num_partitions: Annotated[int, Number(least=-1, most=MAX_EXAMPLES, integer=True)]
    root_mean_square: Annotated[float | None, Number(kinds.MAGNITUDE, least=0, record=kinds.CONFIG)] = None
    scaled: Annotated[bool | None, Flag(record=kinds.CONFIG)] = None

    @property
    def cluster(self) -> int | None:
        """The true cluster; None where it is not known."""
        return None if self.true_cluster == kinds.NO_CLUSTER else self.true_cluster

    @property
    def magnitude(self) -> Magnitude | None:
        """What the node says of its inputs."""
        if self.root_mean_square is None or self.scaled is None:
            return None
        return Magnitude(self.root_mean_square, self.scaled)

    def check(self) -> None:
        """Hold the two entries of a magnitude together."""
        if (self.root_mean_square is None) != (self.scaled is None):
            raise MalformedMessage(f"{kinds.MAGNITUDE} must be a number from 0, with {kinds.SCALED}")


def rounded_magnitude(value: float) -> float:
    """Return a root mean square with one significant digit, as it is sent."""
    return float(f"{min(value, _LARGEST_MAGNITUDE):.0e}")
