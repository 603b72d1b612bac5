"""The page of a run that may be going on, computed from its state."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from florets.reports.console import counted, duration, size
from florets.reports.plots import BOUNDED, TITLES, panels_of
from florets.reports.report import replies
from florets.reports.report_template import CSS
from florets.reports.summary import RoundLine, last
from florets.reports.watch.charts import curve
from florets.reports.watch.history import LOSS, ClientHistory, Move
from florets.reports.watch.page_template import MAIN, PAGE, WATCH_STYLE
from florets.reports.watch.state import RunState

MOST_NAMED = 300
"""With more clients than this the groups show sizes alone."""
MOST_ROWS = 60
"""Of more clients than this the losses are those of the ones with the highest."""
MOST_MOVES = 30
_LATELY = 3
"""Rounds for which a client that moved is marked."""


@cache
def _templates() -> Environment:
    # Client names come from other machines: autoescape keeps them text.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals["counted"] = counted
    return environment


def whole_page(state: RunState, clients: ClientHistory, nonce: str) -> str:
    """Return the page; `nonce` marks its one script as its own."""
    title = state.names.experiment or state.folder.name
    style = Markup(CSS + WATCH_STYLE)
    main = Markup(main_part(state, clients))
    return _templates().from_string(PAGE).render(title=title, style=style, nonce=nonce, main=main)


def main_part(state: RunState, clients: ClientHistory) -> str:
    """Return the part of the page that changes while the run goes on."""
    return (
        _templates()
        .from_string(MAIN)
        .render(
            folder=str(state.folder),
            names=state.names,
            status=state.status,
            words=_words(state),
            done=len(state.lines),
            total=state.total,
            reason=state.reason,
            warnings=[] if state.summary is None else state.summary.warnings,
            tiles=_tiles(state) if state.lines else [],
            curves=_curves(state),
            groups=_groups(state, clients),
            moves=_moves(clients.moves),
            losses=_losses(clients),
            replies=replies(state.lines),
            troubles=_troubles(clients),
            rejected=_rejected(state.lines),
            time=time.strftime("%H:%M:%S"),
        )
    )


def _words(state: RunState) -> str:
    rounds = f"round {len(state.lines)}" + (f" of {state.total}" if state.total else "")
    if state.status == "waiting":
        return "Waiting for a run in this folder."
    if state.status == "starting":
        return "The run has begun; no round is over yet."
    if state.status == "finished":
        return f"Finished after {counted(len(state.lines), 'round')}."
    if state.status == "ended":
        return f"Ended early, after {counted(len(state.lines), 'round')}."
    if state.status == "silent":
        return (
            f"No news for {duration(state.age)}, after {rounds}: the run may be waiting for clients, or was killed."
        )
    if state.left is None:
        return f"Running: {rounds}."
    return f"Running: {rounds}; about {duration(_coarse(state.left))} left."


def _coarse(seconds: float) -> float:
    """Return a time without a precision that an estimate does not have."""
    return float(max(round(seconds), 1)) if seconds < 100 else float(round(seconds / 10) * 10)


def _tiles(state: RunState) -> list[dict[str, str]]:
    lines = state.lines
    tiles = []
    for key, name in (("accuracy", "test accuracy"), ("loss", "test loss"), ("ari", "adjusted Rand index")):
        if (value := last(lines, key)) is None or (key == "loss" and last(lines, "accuracy") is not None):
            continue
        tiles.append({"name": name, "value": _text_of(key)(value, False), "note": _change(lines, key)})
    if (value := last(lines, "train_loss")) is not None:
        tiles.append({"name": "train loss", "value": f"{value:.4g}", "note": _change(lines, "train_loss")})
    groups = lines[-1]["num_clusters"]
    note = "stable" if lines[-1]["stable"] else lines[-1]["phase"].replace("_", " ")
    tiles.append({"name": "groups", "value": str(groups), "note": note})
    down, up = (sum(line[way] for line in lines) for way in ("bytes_down", "bytes_up"))
    tiles.append({"name": "traffic", "value": size(down + up), "note": f"{size(down)} down, {size(up)} up"})
    if state.round_time is not None:
        tiles.append({"name": "a round", "value": duration(state.round_time), "note": "mean of the last ones"})
    return tiles


def _change(lines: Sequence[RoundLine], key: str) -> str:
    """Return how a quantity has changed since it was measured before."""
    known = [(line["round"], line[key]) for line in lines if line[key] is not None]
    if len(known) < 2:
        return f"round {known[-1][0]}"
    difference = known[-1][1] - known[-2][1]
    words = f"{100 * difference:+.1f} points" if key == "accuracy" else f"{difference:+.3g}"
    return f"{words if difference else 'unchanged'} since round {known[-2][0]}"


def _text_of(key: str) -> Callable[[float, bool], str]:
    """Return how a value of a quantity is written: at an axis, or by itself."""
    if key in ("accuracy", "cluster_error"):
        return lambda value, tick: f"{100 * value:.3g} %" if tick else f"{100 * value:.1f} %"
    return lambda value, _: f"{value:.2f}" if key == "ari" else f"{value:.3g}"


def _curves(state: RunState) -> list[dict[str, Any]]:
    drawn = []
    for key in panels_of([state.lines]):
        points = [(line["round"], line[key]) for line in state.lines if line[key] is not None]
        spread = [(line["round"], line.get(f"{key}_std") or 0.0) for line in state.lines if line[key] is not None]
        total = state.total if state.status in ("running", "starting") and state.total else 0
        picture = curve(points, _text_of(key), TITLES[key], key in BOUNDED, total, spread)
        drawn.append({"title": TITLES[key], "picture": picture, "band": any(value for _, value in spread)})
    return drawn


def _groups(state: RunState, clients: ClientHistory) -> list[dict[str, Any]]:
    """Return the groups with their clients, or with their sizes where single clients are too many or not known."""
    if not state.lines:
        return []
    if not clients.clusters:
        sizes = enumerate(state.lines[-1]["cluster_sizes"])
        return [{"model": model, "size": number, "members": []} for model, number in sizes]
    lately = {move.client: move for move in clients.moves if move.server_round > state.lines[-1]["round"] - _LATELY}
    by_model: dict[int, list[str]] = {}
    for client, model in sorted(clients.clusters.items()):
        by_model.setdefault(model, []).append(client)
    named = len(clients.clusters) <= MOST_NAMED
    return [
        {
            "model": model,
            "size": len(members),
            "members": [{"name": client, "move": lately.get(client)} for client in members if named],
        }
        for model, members in sorted(by_model.items())
    ]


def _moves(moves: Sequence[Move]) -> list[dict[str, Any]]:
    """Return who moved, by round, the last one first."""
    by_round: dict[int, list[Move]] = {}
    for move in moves:
        by_round.setdefault(move.server_round, []).append(move)
    shown: list[dict[str, Any]] = []
    left = MOST_MOVES
    for server_round in sorted(by_round, reverse=True):
        if left <= 0:
            break
        some = by_round[server_round][:left]
        left -= len(some)
        shown.append({"round": server_round, "moves": some, "more": len(by_round[server_round]) - len(some)})
    return shown


def _losses(clients: ClientHistory) -> dict[str, Any] | None:
    """Return the heat map of the clients' losses over the rounds, by group; None where none is known."""
    name, rounds, found = clients.losses()
    if not rounds:
        return None
    keys = list(found)
    if some := len(keys) > MOST_ROWS:
        keys = sorted(keys, key=lambda key: _rank(found[key][max(found[key])]))[-MOST_ROWS:]
    keys.sort(key=lambda key: (clients.clusters.get(key, -1), key))
    finite = [value for key in keys for value in found[key].values() if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    rows = []
    for key in keys:
        of = found[key]
        cells = [_cell(server_round, of.get(server_round), low, high) for server_round in rounds]
        newest = of[max(of)]
        model = clients.clusters.get(key, "-")
        rows.append({"client": key, "name": _short(key), "model": model, "cells": cells, "last": f"{newest:.3g}"})
    return {
        "kind": "test loss" if name == LOSS else "training loss",
        "rounds": rounds,
        "rows": rows,
        "low": f"{low:.3g}",
        "high": f"{high:.3g}",
        "left_out": len(found) - len(rows) if some else 0,
    }


def _short(client: str) -> str:
    """Return a client's name without its middle where it is long: names of many begin alike."""
    return client if len(client) <= 20 else f"{client[:9]}…{client[-9:]}"


def _rank(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _cell(server_round: int, value: float | None, low: float, high: float) -> dict[str, str]:
    if value is None:
        return {"shade": "0", "mark": "", "title": f"round {server_round}: not known"}
    if not math.isfinite(value):
        return {"shade": "0", "mark": "!", "title": f"round {server_round}: diverged"}
    part = (value - low) / (high - low) if high > low else 0.0
    return {"shade": f"{0.06 + 0.86 * part:.2f}", "mark": "", "title": f"round {server_round}: {value:.4g}"}


def _troubles(clients: ClientHistory) -> list[tuple[str, int]]:
    return Counter(clients.troubles).most_common(20)


def _rejected(lines: Sequence[RoundLine]) -> list[tuple[int, str, str]]:
    """Return the last outliers: round, client, reason."""
    found = [(line["round"], client, why) for line in lines[-50:] for client, why in line.get("rejected", {}).items()]
    return found[:-11:-1]
