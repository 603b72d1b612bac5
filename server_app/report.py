"""The page that shows a run: one HTML file with its pictures inside, readable without a server."""

from __future__ import annotations

import base64
import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from server_app.heatmap import draw_loss_matrix
from server_app.plots import draw_curves
from server_app.report_template import PAGE, STYLE
from server_app.summary import RoundLine, RunSummary, last, round_seconds

MOST_COLUMNS = 30
"""A table of clusters with more models than this tells nothing."""

Row = dict[str, str]
"""One line of clients.csv or loss_matrix.csv; what is not known is empty."""


def _rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def size(num_bytes: float) -> str:
    """Return a number of bytes in the unit that suits it, decimal as networks count."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return (
                f"{num_bytes / factor:.3g} {unit}"
                if num_bytes < 999.5 * factor
                else f"{num_bytes / factor:.0f} {unit}"
            )
    return f"{num_bytes:.0f} B"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _verdict(summary: RunSummary, clients: Sequence[Row], num_models: int) -> tuple[str, bool]:
    """Return in one sentence whether the clusters were found, and whether they were."""
    if summary.final_ari is None:
        return "", False
    known = [row["true_cluster"] for row in clients if row["true_cluster"] and row["found_cluster"]]
    truth, placed = set(known), len(known)
    if summary.final_ari == 1:
        stable = summary.round_of_stability
        since = f"; the clustering is frozen from round {stable} on" if stable is not None else ""
        return f"The {len(truth)} true clusters of {placed} clients are recovered exactly{since}.", True
    if num_models == 1:
        return f"One model serves all clients: the {len(truth)} true clusters are not told apart.", False
    if num_models == placed:
        return f"Each client has a model of its own: the {len(truth)} true clusters are not used.", False
    return (
        f"{num_models} clusters found where {len(truth)} are true; adjusted Rand index {summary.final_ari:.2f} "
        "(1 = recovered exactly, 0 = no better than chance).",
        False,
    )


def _tiles(summary: RunSummary, lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    tiles = []
    if summary.final_accuracy is not None:
        std = last(lines, "accuracy_std")
        note = f"mean over clients, std {100 * std:.1f}" if std is not None else "mean over clients"
        tiles.append({"name": "test accuracy", "value": f"{summary.final_accuracy:.2%}", "note": note})
    elif summary.final_loss is not None:
        tiles.append({"name": "test loss", "value": f"{summary.final_loss:.4g}", "note": "mean over clients"})
    if summary.final_ari is not None:
        first = summary.first_round_ari_90
        note = f"at least 0.9 from round {first}" if first is not None else "never reached 0.9"
        tiles.append({"name": "adjusted Rand index", "value": f"{summary.final_ari:.3f}", "note": note})
    stable = summary.round_of_stability
    note = f"stable from round {stable}" if stable is not None else ""
    tiles.append({"name": "rounds", "value": str(summary.rounds), "note": note})
    traffic = f"{size(summary.bytes_down)} down, {size(summary.bytes_up)} up"
    tiles.append({"name": "traffic", "value": size(summary.bytes_down + summary.bytes_up), "note": traffic})
    per_round = f"{_duration(summary.seconds / summary.rounds)} a round" if summary.rounds else ""
    tiles.append({"name": "time", "value": _duration(summary.seconds), "note": per_round})
    return tiles


def _confusion(clients: Sequence[Row], num_models: int) -> dict[str, Any] | None:
    """Count clients by true cluster and model; one row of sizes where the truth is not known."""
    placed = [row for row in clients if row["found_cluster"]]
    if not placed or num_models > MOST_COLUMNS:
        return None
    counts = Counter((row["true_cluster"], int(row["found_cluster"])) for row in placed)
    models = range(max(model for _, model in counts) + 1)
    names = sorted({true for true, _ in counts}, key=lambda true: (not true, int(true or 0)))
    most = max(counts.values())
    known = any(names)
    rows = []
    for true in names:
        of_row = [counts[true, model] for model in models]
        cells = [{"text": str(n) if n else "", "shade": f"{0.06 + 0.34 * n / most if n else 0:.2f}"} for n in of_row]
        label = f"cluster {true}" if true else ("not known" if known else "clients")
        rows.append({"name": label, "cells": cells})
    without = len(clients) - len(placed)
    note = (
        "Clients by true cluster (rows) and by the model that they were given." if known else "Clients of each model."
    )
    if without:
        note += f" {without} clients never took part and have no model."
    return {"note": note, "corner": "true cluster" if known else "", "models": list(models), "rows": rows}


def _parts(lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    totals: dict[str, float] = {}
    for line in lines:
        for part, seconds in line["seconds"].items():
            if part != "total":
                totals[part] = totals.get(part, 0.0) + seconds
    everything = sum(round_seconds(line) for line in lines)
    other = everything - sum(totals.values())
    if everything and other > 0.005 * everything:
        totals["other"] = other
    return [
        {
            "name": part,
            "total": f"{seconds:.2f}",
            "per_round": f"{seconds / len(lines):.3f}",
            "share": f"{seconds / everything:.0%}" if everything else "-",
        }
        for part, seconds in [*totals.items(), ("total", everything)]
        if lines
    ]


def _phases(lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    rows = []
    for phase in dict.fromkeys(line["phase"] for line in lines):
        same = [line for line in lines if line["phase"] == phase]
        rows.append(
            {
                "name": phase,
                "rounds": str(len(same)),
                "down": size(sum(line["bytes_down"] for line in same) / len(same)),
                "up": size(sum(line["bytes_up"] for line in same) / len(same)),
                "seconds": f"{sum(map(round_seconds, same)) / len(same):.2f}",
            }
        )
    return rows


def _replies(lines: Sequence[RoundLine]) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line["replies"])
    return [{"name": name, "count": n, "amiss": name != "ok" and n > 0} for name, n in counts.items()]


def _client_table(clients: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    head = ["client", "true cluster", "model", "examples", "test examples", "test loss", "test accuracy", "device"]
    table = []
    for row in clients:
        loss = f"{float(row['test_loss']):.4g}" if row["test_loss"] else ""
        accuracy = f"{float(row['test_accuracy']):.1%}" if row["test_accuracy"] else ""
        cells = [row["client"], row["true_cluster"], row["found_cluster"], row["num_examples"]]
        table.append([cell or "-" for cell in [*cells, row["test_examples"], loss, accuracy, row["device"]]])
    # A column in which nothing is known (the true cluster of real clients) only takes room.
    kept = [i for i in range(len(head)) if any(cells[i] != "-" for cells in table)]
    return [head[i] for i in kept], [[cells[i] for i in kept] for cells in table]


def _image(path: Path) -> dict[str, Any]:
    png = path.read_bytes()
    # The header of a PNG has its width in bytes 16 to 19; 1.5 dots for each pixel of the page keep it sharp.
    return {"data": base64.b64encode(png).decode("ascii"), "width": int.from_bytes(png[16:20], "big") * 2 // 3}


def draw_plots(folder: Path, lines: Sequence[RoundLine], clients: Sequence[Row]) -> dict[str, dict[str, Any] | None]:
    """Draw a run's pictures into its folder; return those that there are, for the page."""
    images: dict[str, dict[str, Any] | None] = {"curves": None, "heatmap": None}
    if lines and draw_curves(lines, folder / "curves.png"):
        images["curves"] = _image(folder / "curves.png")
    rows = _rows(folder / "loss_matrix.csv")
    if rows:
        models = [name for name in rows[0] if name.startswith("model_")]
        losses = np.array([[float(row[model]) for model in models] for row in rows], dtype=np.float64)
        truth = {row["client"]: int(row["true_cluster"]) for row in clients if row["true_cluster"]}
        found = {row["client"]: int(row["found_cluster"]) for row in clients if row["found_cluster"]}
        if draw_loss_matrix([row["client"] for row in rows], losses, truth, found, folder / "loss_matrix.png"):
            images["heatmap"] = _image(folder / "loss_matrix.png")
    return images


def write_report(folder: Path, title: str = "") -> Path:
    """Draw a finished run's plots and write its ``report.html``, from the files in its folder alone.

    Parameters
    ----------
    folder : Path
        A run's folder, with at least ``summary.json``, ``rounds.jsonl``, ``clients.csv``, ``config.yaml``.
    title : str
        The page's heading; the name of the experiment where it is empty.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    OSError
        If one of those files is missing: only a run that came to its end has them all.
    """
    summary = RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    clients = _rows(folder / "clients.csv")
    num_models = len({row["found_cluster"] for row in clients if row["found_cluster"]})
    verdict, recovered = _verdict(summary, clients, num_models)
    head, table = _client_table(clients)
    # Client names come from other machines: autoescape keeps them text.
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(PAGE)
    html = page.render(
        style=STYLE,
        summary=summary,
        title=title,
        verdict=verdict,
        recovered=recovered,
        tiles=_tiles(summary, lines),
        confusion=_confusion(clients, num_models),
        parts=_parts(lines),
        phases=_phases(lines),
        replies=_replies(lines),
        client_head=head,
        clients=table,
        config=(folder / "config.yaml").read_text(encoding="utf-8"),
        **draw_plots(folder, lines, clients),
    )
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path
