"""Curves as SVG within a page: drawn anew with each round, in the page's own colours."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT = 480, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 86, 12, 34
_MOST_MARKS = 40

Points = Sequence[tuple[int, float]]


def curve(
    points: Points, text: Callable[[float, bool], str], name: str, bounded: bool, last_round: int, spread: Points = ()
) -> Markup:
    """Return a curve over the rounds as an SVG element.

    Parameters
    ----------
    points
        Round and value; at least one.
    text
        Formats a value for the end of the curve or, with True, for the axis.
    name
        For screen readers.
    bounded
        The quantity ends at 1.
    last_round
        Of the axis: the run's last round, where that is known.
    spread
        Round and standard deviation, drawn as a band.
    """
    deviation = dict(spread)
    low, high = _limits([value for _, value in points], bounded)
    last = max(last_round, points[-1][0], 2)

    def x(server_round: float) -> float:
        return _LEFT + (server_round - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        inside = min(max((value - low) / (high - low), 0.0), 1.0)
        return _HEIGHT - _BOTTOM - inside * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for value in _ticks(low, high):
        level = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{level + 5:.1f}" text-anchor="end">{text(value, True)}</text>')
    for server_round in _round_ticks(last):
        parts.append(f'<text x="{x(server_round):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{server_round}</text>')
    parts.append(f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 10}" text-anchor="end">round</text>')
    if any(deviation.values()):
        top = [(x(number), y(value + deviation.get(number, 0.0))) for number, value in points]
        bottom = [(x(number), y(value - deviation.get(number, 0.0))) for number, value in reversed(points)]
        parts.append(f'<polygon class="band" points="{_path([*top, *bottom])}"/>')
    places = [(x(number), y(value)) for number, value in points]
    parts.append(f'<polyline class="curve" points="{_path(places)}"/>')
    marked = places if len(places) <= _MOST_MARKS else places[-1:]
    parts += [f'<circle class="mark" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3"/>' for at in marked]
    end = places[-1]
    parts.append(f'<text class="end" x="{end[0] + 9:.1f}" y="{end[1] + 5:.1f}">{text(points[-1][1], False)}</text>')
    label = Markup("{}, round {}: {}").format(name, points[-1][0], text(points[-1][1], False))
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("".join(parts))
    )


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _limits(values: Sequence[float], bounded: bool) -> tuple[float, float]:
    least, most = min(values), max(values)
    if bounded:
        # From a tenth below the lowest value, so that 97 % and 99 % can be distinguished.
        return (min(least, 0.0), 1.0) if least <= 0.1 else (max(least - 0.1 * (1 - least), 0.0), 1.0)
    room = 0.08 * (most - least) or 0.1 * abs(most) or 0.1
    return (max(least - room, 0.0) if least >= 0 else least - room), most + room


def _ticks(low: float, high: float) -> list[float]:
    """Return four or five round numbers between two limits."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _round_ticks(last: int) -> list[int]:
    step = next(
        step
        for power in (1, 10, 100, 1000, 10_000, 100_000)
        for step in (power, 2 * power, 5 * power)
        if last / step <= 6
    )
    return list(range(step, last + 1, step)) if step > 1 else list(range(1, last + 1))
