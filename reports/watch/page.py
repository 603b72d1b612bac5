"""The page of a run that may be going on: its frame, and the part that is replaced as the run goes on."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from florets.reports.console import counted, duration, size
from florets.reports.pages import Cell, render, shaded
from florets.reports.quantities import QUANTITIES, Quantity, known_quantities
from florets.reports.run_page import Table, Tile, replies
from florets.reports.summary import Curve, Figure, RoundLine, last, traffic
from florets.reports.watch.state import LOSS, ClientHistory, Move, RunState

MOST_NAMED = 300
"""With more clients than this the groups show sizes alone."""
MOST_ROWS = 60
"""Of more clients than this the losses are those of the ones with the highest."""
MOST_MOVES = 30
_LATELY = 3
"""Rounds for which a client that moved is marked."""

_PAGE = """{% extends "page" %}
{% block head %}
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="5"></noscript>
{% endblock %}
{% block css %}
:root { color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --quiet: #a3b0bd; --line: #343e48; --paper: #1b2229; --ground: #12171c; --accent: #56b4e9;
    --good: #3fbf8f; --shade: 86 180 233; --bad: #ff9c66; --warn: #e0a34a; --faint: #a3b0bd; }
}
a { color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
header p.path { font-size: .84rem; overflow-wrap: anywhere; }
.bar { height: .5rem; margin: .6rem 0 0; border-radius: 4px; background: var(--line); overflow: hidden; }
.bar div { height: 100%; background: var(--accent); }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; max-width: 62rem; margin: 0 auto;
  padding: .7rem 1.2rem 0; color: var(--quiet); font-size: .84rem; }
.controls button { font: inherit; min-height: 2.4rem; padding: .3rem .9rem; color: var(--ink);
  background: var(--paper); border: 1px solid var(--quiet); border-radius: 6px; cursor: pointer; }
.controls p { margin: 0; }
main { padding-top: 1rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 1.5rem; }
figure { margin: 0; }
figcaption { font-size: .92rem; font-weight: 600; margin-bottom: .3rem; }
figure svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--quiet); font-size: 14px; font-variant-numeric: tabular-nums; }
svg text.end { fill: var(--accent); font-weight: 700; font-size: 15px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .curve { fill: none; stroke: var(--accent); stroke-width: 2.2; stroke-linejoin: round; }
svg .mark { fill: var(--accent); }
svg .band { fill: var(--accent); opacity: .16; }
.groups { display: grid; gap: .7rem; }
.groups h3 { margin: 0 0 .25rem; font-size: .92rem; }
.groups h3 span { font-weight: 400; color: var(--quiet); }
ul.chips { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; padding: 0; }
ul.chips li { max-width: 100%; margin: 0; padding: .08rem .5rem; border: 1px solid var(--line); border-radius: 5px;
  font-size: .84rem; background: var(--ground); font-variant-numeric: tabular-nums; }
ul.chips li.moved { border: 2px solid var(--accent); font-weight: 650; }
ul.moves { padding: 0; list-style: none; font-size: .92rem; }
ul.moves li { margin: 0; padding: .2rem 0; border-bottom: 1px solid var(--line); }
ul.moves li:last-child { border-bottom: 0; }
section > p.rejected { margin: .6rem 0 0; overflow-wrap: anywhere; }
h2.second { margin-top: 1.2rem; }
table.heat { border-collapse: separate; border-spacing: 1px; }
table.heat th, table.heat td { border: 0; padding: .1rem .35rem; }
table.heat th.cell { padding: .1rem 0; text-align: center; }
table.heat td.cell { min-width: 1.5rem; height: 1.25rem; padding: 0; text-align: center; border-radius: 2px; }
.legend { display: inline-block; width: 6rem; height: .7rem; border-radius: 3px; vertical-align: middle;
  background: linear-gradient(to right, rgb(var(--shade) / .06), rgb(var(--shade) / .92)); }
@media (max-width: 40rem) { .controls { padding: .7rem .7rem 0; } svg text { font-size: 17px; }
  svg text.end { font-size: 18px; } }
{% endblock %}
{% block body %}
<div class="controls"><button id="pause" type="button" aria-pressed="false">Pause</button>
<p id="link" role="status"></p></div>
<main id="main">{{ main }}</main>
<script nonce="{{ nonce }}">
"use strict";
const main = document.getElementById("main"), link = document.getElementById("link");
const pause = document.getElementById("pause");
let paused = false, lost = 0, tag = "";
const places = () => new Map([...main.querySelectorAll("[id]")].map(
  (part) => [part.id, { open: part.open, left: part.scrollLeft }]));
async function refresh() {
  if (paused || document.hidden) return;
  try {
    const answer = await fetch("/main", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (lost) { lost = 0; link.textContent = ""; }
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag") || "";
    const text = await answer.text(), before = places(), focused = document.activeElement.id || "main";
    main.innerHTML = text;
    for (const [id, was] of before) {
      const part = document.getElementById(id);
      if (!part) continue;
      if (part.tagName === "DETAILS") part.open = was.open;
      part.scrollLeft = was.left;
    }
    if (document.activeElement.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
  } catch {
    if (++lost === 2) link.textContent = "florets watch has ended; this is the last state that it showed.";
  }
}
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  link.textContent = paused ? "Paused: the page is not refreshed." : "";
  refresh();
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, 2000);
</script>
{% endblock %}
"""

_MAIN = """<header>
{% if names.strategy %}
<p>{{ names.strategy }}, seed {{ names.seed }}, preset {{ names.experiment }}</p>
{% endif %}
<h1>{{ names.task or "No run yet" }}</h1>
<p class="path">{{ folder }}</p>
<p class="verdict{{ ' good' if status == 'finished' else '' }}">{{ words }}
{%- if status == "finished" %} <a id="report" href="/report.html">The report</a>{% endif %}</p>
{% if total %}
<div class="bar" role="progressbar" aria-label="rounds" aria-valuemin="0" aria-valuemax="{{ total }}"
aria-valuenow="{{ done }}"><div style="width: {{ [100 * done / total, 100] | min | round(1) }}%"></div></div>
{% endif %}
{% if reason %}<p class="warning">{{ reason }}</p>{% endif %}
{{ warnings(said) }}
</header>

{% if figures %}{{ tiles(figures) }}{% endif %}

{% call section("Over the rounds", shown=curves) %}
<div class="charts">
{% for title, has_band, picture in curves %}
<figure><figcaption>{{ title }}{% if has_band %} (band: ± std){% endif %}</figcaption>{{ picture }}</figure>
{% endfor %}
</div>
{% endcall %}

{% call section("Groups", shown=groups) %}
<div class="groups">
{% for model, size, members in groups %}
<div><h3>model {{ model }} <span>{{ size }}</span></h3>
{% if members %}
<ul class="chips">
{% for name, before in members -%}
<li{% if before is not none %} class="moved"{% endif %}>{{ name }}
{%- if before is not none %} (from {{ before }}){% endif %}</li>
{% endfor %}
</ul>
{% endif %}
</div>
{% endfor %}
</div>
{% if moves %}
<h2 class="second">Who moved</h2>
<ul class="moves">
{% for text in moves %}<li>{{ text }}</li>
{% endfor %}
</ul>
{% endif %}
{% endcall %}

{% call section("Losses", shown=losses) %}
<p>The {{ losses.kind }} of each client in its group's model, over the last rounds:
{{ losses.low }} <span class="legend"></span> {{ losses.high }}; ! diverged.
{%- if losses.left_out %} Shown are the {{ losses.rows | length - 1 }} clients with the
highest; {{ losses.left_out }} more have lower ones.{% endif %}</p>
{{ table(losses.rows, "heat", "", "heat", "Losses by client and round") }}
{% endcall %}

{% call section("Replies", shown=replies | length > 1) %}
<div class="columns">
{{ table(replies, "", "All rounds", "outcomes", "Replies by outcome") }}
{% if troubles | length > 1 %}
{{ table(troubles, "", "Clients with replies that failed", "troubles", "Failed replies by client") }}
{% endif %}
</div>
{% for text in rejected %}<p class="rejected">{{ text }}</p>
{% endfor %}
{% endcall %}

<footer>State at {{ time }}. Shown by florets watch, from the files in the run's folder.</footer>
"""


def whole_page(state: RunState, clients: ClientHistory, nonce: str) -> str:
    """Return the page; `nonce` marks its one script as its own."""
    name = state.names.experiment or state.folder.name
    return render(_PAGE, name=name, nonce=nonce, main=Markup(main_part(state, clients)))


def main_part(state: RunState, clients: ClientHistory) -> str:
    """Return the part of the page that changes while the run goes on."""
    return render(
        _MAIN,
        folder=str(state.folder),
        names=state.names,
        status=state.status,
        words=state.words,
        done=len(state.lines),
        total=state.total,
        reason=state.reason,
        said=[] if state.summary is None else state.summary.warnings,
        figures=_tiles(state) if state.lines else [],
        curves=_curves(state),
        groups=_groups(state, clients),
        moves=_moves(clients.moves),
        losses=_losses(clients),
        replies=replies(state.lines),
        troubles=[
            ["client", "replies"],
            *([key, (str(count), {"class": "amiss"})] for key, count in Counter(clients.troubles).most_common(20)),
        ],
        rejected=_rejected(state.lines),
        time=time.strftime("%H:%M:%S"),
    )


def _tiles(state: RunState) -> list[Tile]:
    lines, tiles = state.lines, list[Tile]()
    names: dict[Curve, str] = {"accuracy": "test accuracy", "loss": "test loss", "ari": "adjusted Rand index"}
    for key, name in names.items():
        if (value := last(lines, key)) is not None and (key != "loss" or last(lines, "accuracy") is None):
            tiles.append((name, QUANTITIES[key].text(value), _change(lines, key)))
    if (value := last(lines, "train_loss")) is not None:
        tiles.append(("train loss", f"{value:.4g}", _change(lines, "train_loss")))
    note = "stable" if lines[-1]["stable"] else lines[-1]["phase"].replace("_", " ")
    tiles.append(("groups", str(lines[-1]["num_clusters"]), note))
    down, up = traffic(lines)
    tiles.append(("traffic", size(down + up), f"{size(down)} down, {size(up)} up"))
    if state.round_time is not None:
        tiles.append(("a round", duration(state.round_time), "mean of the last ones"))
    return tiles


def _change(lines: Sequence[RoundLine], key: Figure) -> str:
    """Return how a quantity has changed since it was measured before."""
    known = [(line["round"], value) for line in lines if (value := line[key]) is not None]
    if len(known) < 2:
        return f"round {known[-1][0]}"
    difference = known[-1][1] - known[-2][1]
    words = f"{100 * difference:+.1f} points" if key == "accuracy" else f"{difference:+.3g}"
    return f"{words if difference else 'unchanged'} since round {known[-2][0]}"


def _groups(state: RunState, clients: ClientHistory) -> list[tuple[int, str, list[tuple[str, int | None]]]]:
    """Return the groups: model, size, and their clients with the model that each had until lately.

    Where single clients are too many or not known, the groups have none.
    """
    if not state.lines:
        return []
    if not clients.clusters:
        return [(model, counted(size, "client"), []) for model, size in enumerate(state.lines[-1]["cluster_sizes"])]
    since = state.lines[-1]["round"] - _LATELY
    before = {move.client: move.before for move in clients.moves if move.server_round > since}
    by_model: dict[int, list[tuple[str, int | None]]] = {}
    for client, model in sorted(clients.clusters.items()):
        by_model.setdefault(model, []).append((client, before.get(client)))
    named = len(clients.clusters) <= MOST_NAMED
    return [
        (model, counted(len(members), "client"), members if named else [])
        for model, members in sorted(by_model.items())
    ]


def _moves(moves: Sequence[Move]) -> list[str]:
    """Return who moved, by round, the last one first."""
    by_round: dict[int, list[Move]] = {}
    for move in moves:
        by_round.setdefault(move.server_round, []).append(move)
    shown, left = list[str](), MOST_MOVES
    for server_round in sorted(by_round, reverse=True):
        if left <= 0:
            break
        of_round = by_round[server_round]
        words = ", ".join(f"{move.client} from {move.before} to {move.now}" for move in of_round[:left])
        more = f", and {len(of_round) - left} more" if len(of_round) > left else ""
        shown.append(f"Round {server_round}: {words}{more}")
        left -= len(of_round)
    return shown


def _losses(clients: ClientHistory) -> dict[str, Any] | None:
    """Return the heat map of the clients' losses over the rounds, by group; None where none is known."""
    name, rounds, found = clients.losses()
    if not rounds:
        return None
    # Of many clients the worst, what has diverged above all.
    newest = {key: of[max(of)] for key, of in found.items()}
    keys = sorted(found, key=lambda key: newest[key] if math.isfinite(newest[key]) else math.inf)[-MOST_ROWS:]
    keys.sort(key=lambda key: (clients.clusters.get(key, -1), key))
    finite = [value for key in keys for value in found[key].values() if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    heads: list[Cell] = [(str(number) if i % 5 == 0 else "", {"class": "cell"}) for i, number in enumerate(rounds)]
    rows: Table = [["client", "model", "last", *heads]]
    for key in keys:
        cells = [_cell(server_round, found[key].get(server_round), low, high) for server_round in rounds]
        # Names of many clients begin alike: long ones lose their middle.
        short = key if len(key) <= 20 else f"{key[:9]}…{key[-9:]}"
        rows.append([(short, {"title": key}), clients.clusters.get(key, "-"), f"{newest[key]:.3g}", *cells])
    return {
        "kind": "test loss" if name == LOSS else "training loss",
        "rows": rows,
        "low": f"{low:.3g}",
        "high": f"{high:.3g}",
        "left_out": len(found) - len(keys),
    }


def _cell(server_round: int, value: float | None, low: float, high: float) -> Cell:
    title, text, part = "not known", "", 0.0
    if value is not None and not math.isfinite(value):
        title, text = "diverged", "!"
    elif value is not None:
        title, part = f"{value:.4g}", 0.06 + 0.86 * ((value - low) / (high - low) if high > low else 0.0)
    return shaded(text, part, **{"class": "cell", "title": f"round {server_round}: {title}"})


def _rejected(lines: Sequence[RoundLine]) -> list[str]:
    """Return who was rejected as an outlier, the last ones first."""
    found = [
        f"Round {line['round']}: {client} was rejected: {why}"
        for line in lines[-50:]
        for client, why in line["rejected"].items()
    ]
    return found[:-11:-1]


# Curves as SVG: drawn anew with each round, in the page's own colours


Points = Sequence[tuple[int, float]]
_WIDTH, _HEIGHT = 480, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 86, 12, 34
_MOST_MARKS = 40


def _curves(state: RunState) -> list[tuple[str, bool, Markup]]:
    drawn = []
    total = state.total if state.status in ("running", "starting") and state.total else 0
    for key in known_quantities([state.lines]):
        quantity = QUANTITIES[key]
        points = [(line["round"], value) for line in state.lines if (value := line[key]) is not None]
        std = quantity.spread
        spread = {line["round"]: (line[std] if std else None) or 0.0 for line in state.lines}
        drawn.append((quantity.title, any(spread.values()), curve(points, quantity, total, spread)))
    return drawn


def curve(points: Points, quantity: Quantity, last_round: int, spread: dict[int, float]) -> Markup:
    """Return a curve over the rounds as an SVG element, with a band of the standard deviation by round.

    The axis ends at `last_round`, or at the last point.
    """
    low, high = _limits([value for _, value in points], quantity.at_most is not None)
    last, text = max(last_round, points[-1][0], 2), quantity.text

    def x(server_round: float) -> float:
        return _LEFT + (server_round - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        inside = min(max((value - low) / (high - low), 0.0), 1.0)
        return _HEIGHT - _BOTTOM - inside * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for value in _ticks(low, high):
        level = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{level + 5:.1f}" text-anchor="end">{text(value)}</text>')
    for server_round in _round_ticks(last):
        parts.append(f'<text x="{x(server_round):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{server_round}</text>')
    parts.append(f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 10}" text-anchor="end">round</text>')
    if any(spread.values()):
        top = [(x(number), y(value + spread[number])) for number, value in points]
        bottom = [(x(number), y(value - spread[number])) for number, value in reversed(points)]
        parts.append(f'<polygon class="band" points="{_path([*top, *bottom])}"/>')
    places = [(x(number), y(value)) for number, value in points]
    parts.append(f'<polyline class="curve" points="{_path(places)}"/>')
    marked = places if len(places) <= _MOST_MARKS else places[-1:]
    parts += [f'<circle class="mark" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3"/>' for at in marked]
    end, shown = places[-1], text(points[-1][1])
    parts.append(f'<text class="end" x="{end[0] + 9:.1f}" y="{end[1] + 5:.1f}">{shown}</text>')
    label = f"{quantity.title}, round {points[-1][0]}: {shown}"
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
    steps = (factor * 10**power for power in range(6) for factor in (1, 2, 5))
    step = next(step for step in steps if last / step <= 6)
    return list(range(step, last + 1, step)) if step > 1 else list(range(1, last + 1))
