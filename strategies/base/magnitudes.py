"""Magnitudes of the clients' inputs: a warning where the form of the files, and not the data, would make groups."""

from collections.abc import Mapping
from statistics import median_low

from florets.task.wire.introduction import Magnitude

_FAR = 20
"""Ratio to the median client from which on inputs are taken to be in another unit: images differ by less, bytes and
floats by 255."""
_MOST_NAMED = 5


class InputMagnitudes:
    """Magnitude of each client's inputs, as far as clients say it."""

    def __init__(self) -> None:
        self._known: dict[str, Magnitude] = {}

    def warning(self, new: Mapping[str, Magnitude]) -> str | None:
        """Take in new clients, and return which of them have inputs of another magnitude; None where none has."""
        self._known.update(new)
        # Of two clients the smaller one counts: most often the other has forgotten to scale.
        median = median_low([one.value for one in self._known.values()]) if self._known else 0.0
        if not median:
            return None
        far = {key: one for key, one in sorted(new.items()) if not 1 / _FAR <= one.value / median <= _FAR}
        if not far:
            return None
        named = [f"{key} {_times(one, median)}" for key, one in list(far.items())[:_MOST_NAMED]]
        more = f" and {len(far) - _MOST_NAMED} more" if len(far) > _MOST_NAMED else ""
        return (
            "inputs differ by orders of magnitude, so that groups may be those of the files' form: of the median "
            f"client's, those of {', '.join(named)}{more}. If pixels are floats from 0 to 255, divide them by 255 or "
            "give bytes (uint8); bring other inputs to one unit"
        )


def _times(one: Magnitude, median: float) -> str:
    ratio = float(f"{one.value / median:.1g}")
    return f"{ratio:g} times ({'pixels scaled to 0..1' if one.scaled else 'numbers as they are'})"
