"""Pictures of a partition: labels and sizes of all clients, and samples as each cluster sees them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from florets.reports.look import COLOURS, GRID, INK, QUIET, STYLE
from florets.reports.picture import Picture
from florets.server_app.partition_view.holdings import Holdings
from florets.server_app.results.heatmap import MOST_NAMES, name_groups, short
from florets.task.task import Task

_TALLEST = 7.5
"""Inches of the rows where they have no names."""
_MOST_COUNTS = 40
"""With more clients or labels than this, numbers in the cells would be too small to read."""
_MOST_CLUSTERS, _MOST_SAMPLES = 12, 10


def draw_holdings(held: Holdings, path: Path) -> None:
    """Draw a row for each client: the fraction of each label among its train samples, and their number.

    Parameters
    ----------
    held
        Rows are sorted by cluster, then by key.
    path
        Of the PNG.
    """
    order = np.lexsort((np.arange(len(held.keys)), held.clusters))
    num_clients, num_labels = held.train.shape
    named = num_clients <= MOST_NAMES
    row_height = min(0.24, 9.0 / num_clients) if named else _TALLEST / num_clients
    height = max(2.4, 1.1 + row_height * num_clients)
    width = max(2.6, min(8.0, 0.42 * num_labels))
    with rc_context(STYLE):
        figure = _figure(width + 4.4, height)
        axes, sizes = figure.subplots(1, 2, sharey=True, width_ratios=[width, 1.7])
        axes.imshow(
            held.fractions[order],
            aspect="auto",
            cmap="YlGnBu",
            vmin=0,
            vmax=_brightest(held),
            interpolation="nearest",
        )
        letters = min(8.5, row_height * 72 * 0.62)
        if named and num_labels <= _MOST_COUNTS:
            _write_counts(axes, held.train[order], held.fractions[order], _brightest(held), letters)
        for edge in np.arange(0.5, num_labels - 1):
            axes.axvline(edge, color="white", linewidth=1.2 if num_labels <= _MOST_COUNTS else 0.3)
        shown = range(0, num_labels, max(1, num_labels // 20))
        axes.set_xticks(list(shown), [held.columns[label] for label in shown])
        axes.set_xlabel("label" if held.has_labels else "target, in tenths of all clients' values")
        names = [short(held.keys[row]) for row in order] if named else []
        axes.set_yticks(range(len(names)), names, fontsize=letters)
        groups = [f"cluster {held.clusters[row]}" if held.clusters[row] >= 0 else None for row in order]
        name_groups(axes, groups, 0.6 * letters * max(map(len, names), default=0) + 4 * named)
        axes.set_title("Train samples of each label" if held.has_labels else "Train samples by their target")
        colours = [COLOURS[cluster % len(COLOURS)] for cluster in held.clusters[order]]
        sizes.barh(np.arange(num_clients), held.sizes[order], color=colours, height=0.82 if named else 1.0)
        sizes.set_xlabel("train samples")
        sizes.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, min_n_ticks=2))
        sizes.grid(axis="x", color=GRID, linewidth=0.8)
        sizes.set_axisbelow(True)
        for panel in (axes, sizes):
            panel.tick_params(length=0)
            for spine in panel.spines.values():
                spine.set_visible(False)
        sizes.tick_params(labelleft=False)
        figure.save(path)


def _figure(width: float, height: float) -> Picture:
    """Return an empty figure of that size in inches."""
    figure = Picture(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def _brightest(held: Holdings) -> float:
    """Return the fraction that is darkest: clients with all labels are to differ visibly as well."""
    return float(max(held.fractions.max(), min(1.0, 3 / held.train.shape[1])))


def _write_counts(
    axes: Axes, counts: NDArray[np.int64], fractions: NDArray[np.float64], most: float, letters: float
) -> None:
    """Write the number of samples into each cell that has some."""
    for row, column in np.argwhere(counts > 0):
        colour = "white" if fractions[row, column] > 0.55 * most else INK
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=letters)


def draw_samples(task: Task, path: Path) -> bool:
    """Draw train samples of each cluster as its clients see them, under their labels; say whether they are images.

    Parameters
    ----------
    task
        Of the first clusters one client each is shown, with one sample of a label before a second one.
    path
        Of the PNG.
    """
    if len(task.input_shape) != 3 or task.input_shape[0] not in (1, 3):
        return False
    first = {task.cluster_of(client): client for client in reversed(range(task.num_clients))}
    clusters = sorted(first)[:_MOST_CLUSTERS]
    with rc_context(STYLE):
        figure = _figure(0.72 * _MOST_SAMPLES + 1.3, 0.98 * len(clusters) + 0.5)
        # Each row has labels of its own over its samples.
        panels = figure.subplots(len(clusters), 1, squeeze=False)[:, 0]
        for axes, cluster in zip(panels, clusters, strict=True):
            client = task.client(first[cluster])
            labels = client.y_train.numpy()
            rows = _varied(labels)
            images = client.x_train[rows].numpy().transpose(0, 2, 3, 1)
            low, high = float(images.min()), float(images.max())
            strip = _side_by_side((images - low) / (high - low if high > low else 1.0))
            axes.imshow(strip.squeeze(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axes.set_xlim(-0.5, _MOST_SAMPLES * (images.shape[2] + _gap(images.shape[2])) - 0.5)
            step = images.shape[2] + _gap(images.shape[2])
            axes.set_xticks(
                [step * i + images.shape[2] / 2 for i in range(len(rows))], [str(y) for y in labels[rows]]
            )
            axes.xaxis.tick_top()
            axes.tick_params(length=0, pad=1, labelbottom=False, labelsize=9, labelcolor=QUIET)
            axes.set_yticks([])
            axes.set_ylabel(f"cluster {cluster}" if cluster >= 0 else "", rotation=0, ha="right", va="center")
            for spine in axes.spines.values():
                spine.set_visible(False)
        panels[0].set_title("Samples as each cluster has them, under their labels")
        figure.save(path)
    return True


def _varied(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of a few samples, each label once before any comes twice, sorted by label."""
    again = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        again[rows] = np.arange(len(rows))
    chosen = np.lexsort((labels, again))[:_MOST_SAMPLES]
    return chosen[np.argsort(labels[chosen], kind="stable")]


def _gap(width: int) -> int:
    return max(1, width // 8)


def _side_by_side(images: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return images (n, height, width, channels) in one row, with white between them."""
    count, height, width, channels = images.shape
    blank = 0.0 if channels == 1 else 1.0
    strip = np.full((height, count * (width + _gap(width)), channels), blank, dtype=np.float32)
    for place, image in enumerate(images):
        left = place * (width + _gap(width))
        strip[:, left : left + width] = image
    return strip
