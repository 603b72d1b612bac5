"""The page that shows a run: one HTML file with its pictures inside, readable without a server."""

from __future__ import annotations

import base64
import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template

from florets.reports.folder import naming, write_whole
from florets.reports.summary import RoundLine, RunSummary, last_evidence, read_lines
from florets.server_app.results import report_figures as figures
from florets.server_app.results.evidence_plot import draw_evidence
from florets.server_app.results.heatmap import draw_loss_matrix
from florets.server_app.results.plots import draw_curves
from florets.server_app.results.report_figures import Row
from florets.server_app.results.report_template import PAGE, STYLE
from florets.server_app.results.spectrum_plot import draw_spectra, spectra_of

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
    verdict, recovered = figures.verdict(summary, clients, num_models)
    head, table = figures.client_table(clients)
    with naming(folder):
        plots = draw_plots(folder, lines, clients) if pictures else dict(NO_PICTURES)
    html = _page().render(
        style=STYLE,
        summary=summary,
        title=title,
        verdict=verdict,
        recovered=recovered,
        tiles=figures.tiles(summary, lines),
        found=summary.discovery,
        confusion=figures.confusion(clients, num_models),
        scores=figures.scores(summary),
        predictions=figures.predictions(_rows(folder / "confusion.csv")),
        parts=figures.parts(lines),
        phases=figures.phases(lines),
        replies=figures.replies(lines),
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
