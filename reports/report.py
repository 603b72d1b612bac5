"""The page that shows a run: one HTML file with its pictures inside, readable without a server."""

from __future__ import annotations

import base64
import csv
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template

from florets.reports.console import counted, duration, number, size
from florets.reports.evidence_plot import draw_evidence
from florets.reports.folder import naming, write_whole
from florets.reports.heatmap import draw_loss_matrix
from florets.reports.plots import draw_curves
from florets.reports.report_template import CSS, PAGE
from florets.reports.spectrum_plot import draw_spectra, spectra_of
from florets.reports.summary import (
    RoundLine,
    RunSummary,
    ari_words,
    last,
    last_evidence,
    read_lines,
    round_seconds,
    stability_words,
    unplaced_words,
)

NO_PICTURES: dict[str, dict[str, Any] | None] = dict.fromkeys(("curves", "heatmap", "discovery", "spectrum"))
"""The page's pictures where nothing is drawn."""


def _rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def embedded(path: Path) -> dict[str, Any]:
    """Return a picture as it goes into a page: its data in base64, and its width in pixels of the page."""
    png = path.read_bytes()
    # The header of a PNG has its width in bytes 16 to 19; 1.5 dots for each pixel of the page keep it sharp.
    return {"data": base64.b64encode(png).decode("ascii"), "width": int.from_bytes(png[16:20], "big") * 2 // 3}


def draw_plots(folder: Path, lines: Sequence[RoundLine], clients: Sequence[Row]) -> dict[str, dict[str, Any] | None]:
    """Draw a run's pictures into its folder; return those that there are, for the page."""
    images: dict[str, dict[str, Any] | None] = dict(NO_PICTURES)
    if lines and draw_curves(lines, folder / "curves.png"):
        images["curves"] = embedded(folder / "curves.png")
    evidence = last_evidence(lines)
    if evidence and draw_evidence(evidence, folder / "discovery.png"):
        images["discovery"] = embedded(folder / "discovery.png")
    if draw_spectra(spectra_of(lines, folder), folder / "spectrum.png"):
        images["spectrum"] = embedded(folder / "spectrum.png")
    rows = _rows(folder / "loss_matrix.csv")
    if rows:
        models = [name for name in rows[0] if name.startswith("model_")]
        truth = {row["client"]: int(row["true_cluster"]) for row in clients if row["true_cluster"]}
        losses = np.array([[float(row[model]) for model in models] for row in rows], dtype=np.float64)
        found = {row["client"]: int(row["found_cluster"]) for row in clients if row["found_cluster"]}
        if draw_loss_matrix([row["client"] for row in rows], losses, truth, found, folder / "loss_matrix.png"):
            images["heatmap"] = embedded(folder / "loss_matrix.png")
    return images


@cache
def _page() -> Template:
    # Client names come from other machines: autoescape keeps them text.
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(PAGE)


def write_report(folder: Path, title: str = "", pictures: bool = True) -> Path:
    """Draw a finished run's plots and write its ``report.html``, from the files in its folder alone.

    Parameters
    ----------
    folder : Path
        A run's folder, with at least ``summary.json``, ``rounds.jsonl``, ``clients.csv``, ``config.yaml``.
    title : str
        The page's heading; the name of the experiment where it is empty.
    pictures : bool
        Whether the plots are drawn: they take most of a small run's end.

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
    lines = read_lines(folder)
    clients = _rows(folder / "clients.csv")
    num_models = len({row["found_cluster"] for row in clients if row["found_cluster"]})
    verdict, recovered = verdict_of(summary, clients, num_models)
    head, table = client_table(clients)
    with naming(folder):
        plots = draw_plots(folder, lines, clients) if pictures else dict(NO_PICTURES)
    html = _page().render(
        style=CSS,
        summary=summary,
        title=title,
        verdict=verdict,
        recovered=recovered,
        tiles=tiles(summary, lines),
        found=summary.discovery,
        confusion=confusion(clients, num_models),
        scores=scores(summary),
        predictions=predictions(_rows(folder / "confusion.csv")),
        parts=parts(lines),
        phases=phases(lines),
        replies=replies(lines),
        client_head=head,
        clients=table,
        num_clients=len(clients),
        config=(folder / "config.yaml").read_text(encoding="utf-8"),
        **plots,
    )
    path = folder / "report.html"
    # A page that is there is whole, and says that the run has come to its end.
    write_whole(path, html)
    return path


MOST_CLIENTS = 300
"""With more clients than this a page is slow to open, and nobody reads on: the rest is in clients.csv."""
MOST_TABLES = 12
"""With more models than this their tables of predictions are left to confusion.csv."""
SCORE_FIGURES = ("mean", "std", "weighted", "worst", "worst_tenth", "median", "q10", "q90")
MOST_COLUMNS = 30
"""A table of clusters with more models than this tells nothing."""

Row = dict[str, str]
"""One line of clients.csv or loss_matrix.csv; what is not known is empty."""


def scores(summary: RunSummary) -> list[list[str]]:
    """Return the table of the clients' scores at the end, its head first; nothing where one score is all there is."""
    if len(summary.final_metrics) < 2:
        return []
    rows = [["score", "clients", *(name.replace("_", " ") for name in SCORE_FIGURES)]]
    for name, told in summary.final_metrics.items():
        cells = ["-" if (value := told[figure]) is None else f"{value:.4g}" for figure in SCORE_FIGURES]
        rows.append([name.replace("_", " "), f"{told['clients']:.0f}", *cells])
    return rows


def predictions(counts: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each model what was predicted for each label, in shaded tables; none where these are too many."""
    cells = Counter({(int(r["model"]), int(r["label"]), int(r["predicted"])): int(r["samples"]) for r in counts})
    models, labels = sorted({cell[0] for cell in cells}), range(1 + max((max(cell[1:]) for cell in cells), default=0))
    if len(models) > MOST_TABLES or len(labels) > MOST_COLUMNS:
        return []
    tables = []
    for model in models:
        rows = []
        for label in labels:
            of_label = [cells[model, label, predicted] for predicted in labels]
            total = max(sum(of_label), 1)
            shown = [{"text": str(n) if n else "", "shade": f"{0.4 * n / total:.2f}"} for n in of_label]
            rows.append({"name": str(label), "cells": shown})
        right = sum(cells[model, label, label] for label in labels)
        every = sum(n for cell, n in cells.items() if cell[0] == model)
        note = f"model {model}: {right} of {every} test samples are right"
        tables.append({"note": note, "labels": list(labels), "rows": rows})
    return tables


def verdict_of(summary: RunSummary, clients: Sequence[Row], num_models: int) -> tuple[str, bool]:
    """Return in one sentence whether the clusters were found, and whether they were."""
    known = [row["true_cluster"] for row in clients if row["true_cluster"] and row["found_cluster"]]
    truth, placed = set(known), len(known)
    if summary.final_ari is None:
        if placed < 2 or len(truth) > 1 or num_models == placed:
            return "", False
        if num_models == 1:
            return "One model serves all clients, and this task has no groups.", True
        return f"{num_models} clusters found, and this task has no groups.", False
    if summary.final_ari == 1:
        words = stability_words(summary)
        since = f"; the clustering is {words}" if words else ""
        of = f"{counted(len(truth), 'true cluster')} of {counted(placed, 'client')}"
        return f"The {of} are recovered exactly{since}.", True
    if num_models == 1:
        return f"One model serves all clients: the {len(truth)} true clusters are not told apart.", False
    if num_models == placed:
        return f"Each client has a model of its own: the {len(truth)} true clusters are not used.", False
    some = ari_words(vars(summary), "final_")
    return (
        f"{num_models} clusters found where {len(truth)} are true; adjusted Rand index {summary.final_ari:.2f}"
        f"{f' over {some}' if some else ''} (1 = recovered exactly, 0 = no better than chance).",
        False,
    )


def tiles(summary: RunSummary, lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    """Return the headline figures: name, value and a note; what is not known has no tile."""
    tiles = []
    mean = "mean over clients"
    if words := unplaced_words(summary.final_unplaced, summary.final_num_clusters):
        mean = f"mean over those with a model; {words}"
    if summary.final_accuracy is not None:
        std = last(lines, "accuracy_std")
        note = f"{mean}, std {100 * std:.1f}" if std is not None else mean
        tiles.append({"name": "test accuracy", "value": f"{summary.final_accuracy:.2%}", "note": note})
    elif summary.final_loss is not None:
        tiles.append({"name": "test loss", "value": f"{summary.final_loss:.4g}", "note": mean})
    tiles += _tuned_tile(summary, lines)
    if summary.final_worst_tenth is not None:
        name = "test accuracy, worst tenth"
        note = "mean over the tenth of the clients with the lowest"
        tiles.append({"name": name, "value": f"{summary.final_worst_tenth:.2%}", "note": note})
    if summary.final_ari is not None:
        first = summary.first_round_ari_90
        note = f"at least 0.9 from round {first}" if first is not None else "never reached 0.9"
        clients = ari_words(vars(summary), "final_")
        note = f"over {clients}; {note}" if clients else note
        tiles.append({"name": "adjusted Rand index", "value": f"{summary.final_ari:.3f}", "note": note})
    if summary.final_model_error is not None:
        note = "largest distance from a true model"
        tiles.append({"name": "model error", "value": f"{summary.final_model_error:.4g}", "note": note})
    note = "of the best model for each true cluster, mean over clusters"
    if summary.final_cluster_error is not None:
        tiles.append({"name": "cluster error", "value": f"{summary.final_cluster_error:.2%}", "note": note})
    elif summary.final_cluster_loss is not None:
        tiles.append({"name": "cluster loss", "value": f"{summary.final_cluster_loss:.4g}", "note": note})
    tiles.append({"name": "rounds", "value": str(summary.rounds), "note": stability_words(summary)})
    traffic = f"{size(summary.bytes_down)} down, {size(summary.bytes_up)} up"
    tiles.append({"name": "traffic", "value": size(summary.bytes_down + summary.bytes_up), "note": traffic})
    per_round = f"{duration(summary.seconds / summary.rounds)} a round" if summary.rounds else ""
    passes = f"{number(summary.gradient_passes)} gradients and {number(summary.loss_passes)} losses of samples"
    tiles.append({"name": "clients' work", "value": duration(summary.client_seconds), "note": passes})
    tiles.append({"name": "time", "value": duration(summary.seconds), "note": per_round})
    return tiles


def _tuned_tile(summary: RunSummary, lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    """Return the figure of the fine-tuned copies, where the run has one, with its gain over the plain models."""
    if (accuracy := summary.final_tuned_accuracy) is not None:
        std = next((line["tuned_accuracy_std"] for line in reversed(lines) if line.get("tuned_accuracy_std")), None)
        notes = [f"{100 * (accuracy - summary.final_accuracy):+.1f} points"] if summary.final_accuracy else []
        notes += [f"std {100 * std:.1f}"] if std is not None else []
        return [{"name": "after fine-tuning", "value": f"{accuracy:.2%}", "note": ", ".join(notes)}]
    if (loss := summary.final_tuned_loss) is not None:
        return [{"name": "loss after fine-tuning", "value": f"{loss:.4g}", "note": "mean over clients"}]
    return []


def confusion(clients: Sequence[Row], num_models: int) -> dict[str, Any] | None:
    """Count clients by true cluster and model; one row of sizes where the truth is not known."""
    placed = [row for row in clients if row["found_cluster"]]
    # Where each client has a model of its own (Local-only) the table would be a diagonal of ones.
    if not placed or num_models > MOST_COLUMNS or num_models == len(placed) > 1:
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
        note += f" {counted(without, 'client')} without a model never took part, or sent nothing that could be used."
    return {"note": note, "corner": "true cluster" if known else "", "models": list(models), "rows": rows}


def parts(lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    """Return the time of each part of the rounds, what no part accounts for, and the total."""
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


def phases(lines: Sequence[RoundLine]) -> list[dict[str, str]]:
    """Return what a round of each phase moves and takes, on average."""
    rows = []
    for phase in dict.fromkeys(line["phase"] for line in lines):
        same = [line for line in lines if line["phase"] == phase]
        rows.append(
            {
                "name": phase.replace("_", " "),
                "rounds": str(len(same)),
                "down": size(sum(line["bytes_down"] for line in same) / len(same)),
                "up": size(sum(line["bytes_up"] for line in same) / len(same)),
                "seconds": f"{sum(map(round_seconds, same)) / len(same):.2f}",
            }
        )
    return rows


def replies(lines: Sequence[RoundLine]) -> list[dict[str, Any]]:
    """Count the replies of all rounds by outcome."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line["replies"])
    return [{"name": name, "count": n, "amiss": name != "ok" and n > 0} for name, n in counts.items()]


def client_table(clients: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table of clients, the first `MOST_CLIENTS` of them."""
    head = ["client", "true cluster", "model", "examples", "test examples", "test loss", "test accuracy"]
    head += ["fine-tuned loss", "fine-tuned accuracy", "device"]
    table = []
    for row in clients[:MOST_CLIENTS]:
        cells = [row["client"], row["true_cluster"], row["found_cluster"], row["num_examples"], row["test_examples"]]
        for model in ("", "tuned_"):
            # Only runs that fine-tune have those columns.
            loss, accuracy = row.get(f"{model}test_loss"), row.get(f"{model}test_accuracy")
            cells += [f"{float(loss):.4g}" if loss else "", f"{float(accuracy):.1%}" if accuracy else ""]
        table.append([cell or "-" for cell in [*cells, row["device"]]])
    # A column in which nothing is known (the true cluster of real clients) only takes room.
    kept = [i for i in range(len(head)) if any(cells[i] != "-" for cells in table)]
    return [head[i] for i in kept], [[cells[i] for i in kept] for cells in table]
