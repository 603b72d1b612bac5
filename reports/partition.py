"""Holdings of the clients: numbers of samples of each client by label, of its own and of other clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from florets.reports.heatmap import MOST_NAMES, name_groups, short
from florets.reports.look import COLOURS, GRID, INK, QUIET, STYLE
from florets.reports.picture import Picture
from florets.reports.report_template import CSS
from florets.task.partitions.changes import Change
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Transform
from florets.task.task import ClientData, Task

IntArray = NDArray[np.int64]

NUM_BINS = 10
"""Values of a regression are counted in tenths of all clients' values, from the lowest to the highest."""
UNCHANGED = "-"


@dataclass(frozen=True)
class Holdings:
    """What the clients of a task hold.

    Parameters
    ----------
    keys
        Of the clients, as a run names them (M).
    clusters
        True clusters (M,), -1 where not known.
    train, test
        Samples of each label on each client (M, C), after what its cluster does to them.
    columns
        Names of the labels, or of the bins of values (C).
    own
        Fraction of a client's train samples that are of its own cluster (M,).
    changes
        What is done to the samples of each cluster, in words, by cluster.
    distinct, repeated
        Rows of the data set that are in a client's train samples, and those of them that are in several clients';
        0 where the nodes have data of their own.
    """

    keys: tuple[str, ...]
    clusters: IntArray
    train: IntArray
    test: IntArray
    columns: tuple[str, ...]
    own: NDArray[np.float64]
    changes: dict[int, str]
    distinct: int = 0
    repeated: int = 0

    @property
    def has_labels(self) -> bool:
        """Whether the columns are labels, and not bins of values."""
        return self.columns[0].isdecimal()

    @property
    def sizes(self) -> IntArray:
        """Train samples of each client (M,)."""
        sizes: IntArray = self.train.sum(axis=1)
        return sizes

    @property
    def fractions(self) -> NDArray[np.float64]:
        """Fraction of each label among a client's train samples (M, C)."""
        return self.train / self.sizes[:, None]

    def skew(self, rows: IntArray | slice, beside: IntArray | slice = slice(None)) -> float:
        """Return how far clients' labels are from those of a group: the mean total variation distance, in [0, 1].

        Parameters
        ----------
        rows
            The clients.
        beside
            The group whose samples, taken together, they are compared with.
        """
        together = self.train[beside].sum(axis=0)
        apart = np.abs(self.fractions[rows] - together / together.sum()).sum(axis=1) / 2
        return float(apart.mean())


def holdings_of(task: Task) -> Holdings:
    """Return what the clients of a task hold that shares out a data set.

    Raises
    ------
    ValueError
        If the task's data or partition cannot be made.
    """
    shards, digits = task.shards, len(str(task.num_clients - 1))
    clients = [task.client(number) for number in range(task.num_clients)]
    train, test, columns = _counted(clients, task.num_outputs)
    rows = [np.concatenate([piece.train for piece in shard.pieces]) for shard in shards]
    holders = np.unique(np.concatenate([np.unique(part) for part in rows]), return_counts=True)[1]
    changes: dict[int, str] = {}
    for piece in (piece for shard in shards for piece in shard.pieces):
        changes.setdefault(piece.cluster, described(piece.transform))
    return Holdings(
        keys=tuple(str(number).zfill(digits) for number in range(len(shards))),
        clusters=np.array([shard.cluster for shard in shards], dtype=np.int64),
        train=train,
        test=test,
        columns=columns,
        own=np.array([len(shard.train) / len(part) for shard, part in zip(shards, rows, strict=True)]),
        changes=dict(sorted(changes.items())),
        distinct=len(holders),
        repeated=int((holders > 1).sum()),
    )


def holdings_of_nodes(tasks: Sequence[Task], nodes: Sequence[dict[str, Any]]) -> Holdings:
    """Return what nodes with data of their own hold.

    Parameters
    ----------
    tasks
        One a node, each with the node's folder.
    nodes
        Their node configs, with ``client-id`` and, where it is known, ``true-cluster``.

    Raises
    ------
    ValueError
        If a node's data cannot be read or do not fit; the text names the node.
    """
    clients = []
    for task, node in zip(tasks, nodes, strict=True):
        try:
            clients.append(task.client(0))
        except ValueError as error:
            raise ValueError(f"client {node['client-id']}: {error}") from error
    train, test, columns = _counted(clients, tasks[0].num_outputs)
    clusters = [int(node.get("true-cluster", UNKNOWN_CLUSTER)) for node in nodes]
    return Holdings(
        keys=tuple(str(node["client-id"]) for node in nodes),
        clusters=np.array(clusters, dtype=np.int64),
        train=train,
        test=test,
        columns=columns,
        own=np.ones(len(nodes)),
        changes=dict.fromkeys(sorted(set(clusters)), UNCHANGED),
    )


def _counted(clients: Sequence[ClientData], num_outputs: int) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """Return the samples of each label on each client, train and test (M, C), and the labels' names."""
    train, test = ([getattr(client, part).numpy() for client in clients] for part in ("y_train", "y_test"))
    if np.issubdtype(train[0].dtype, np.integer):
        names = tuple(str(label) for label in range(num_outputs))
    else:
        edges = np.quantile(np.concatenate(train), np.linspace(0, 1, NUM_BINS + 1)[1:-1])
        train, test = ([np.searchsorted(edges, values) for values in part] for part in (train, test))
        names = tuple(f"{number}/{NUM_BINS}" for number in range(1, NUM_BINS + 1))
    counts = [np.stack([np.bincount(y, minlength=len(names)) for y in part]) for part in (train, test)]
    return counts[0], counts[1], names


def described(transform: Transform | None) -> str:
    """Return in words what a cluster does to its samples."""
    if transform is None:
        return UNCHANGED
    if isinstance(transform, Change):
        return str(transform)
    if isinstance(transform, partial):
        done = transform.func.__name__.lstrip("_")
        return ", ".join([done, *(_given(done, name, value) for name, value in transform.keywords.items())])
    return str(getattr(transform, "__name__", type(transform).__name__))


def _given(done: str, name: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else " ".join(str(value).strip("[]").split())
    return text if name == done else f"{name} {text}"


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


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} (Florets)</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<header>
<p>{{ above }}</p>
<h1>{{ title }}</h1>
</header>
<dl class="tiles">
{% for name, value, note in tiles -%}
<div><dt>{{ name }}</dt><dd>{{ value }}</dd>
{%- if note %}<dd class="note">{{ note }}</dd>{% endif %}</div>
{% endfor -%}
</dl>
{% for picture in pictures %}
<section>
<h2>{{ picture.heading }}</h2>
<p>{{ picture.note }}</p>
<div class="wide"><img src="data:image/png;base64,{{ picture.data }}" width="{{ picture.width }}"
alt="{{ picture.heading }}"></div>
</section>
{% endfor %}
{% for table in tables %}
<section>
<h2>{{ table.heading }}</h2>
{% if table.note %}<p>{{ table.note }}</p>{% endif %}
<div class="wide"><table class="clients">
<thead><tr>{% for name in table.rows[0] %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows[1:] -%}
<tr>{% for cell in row %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</section>
{% endfor %}
<section>
<details>
<summary>Settings of the task</summary>
<pre>{{ config }}</pre>
</details>
</section>
<footer>Written by Florets. The numbers behind this page are in partition.csv, beside it.</footer>
</main>
</body>
</html>
"""


def partition_page(
    title: str,
    above: str,
    tiles: Sequence[tuple[str, str, str]],
    pictures: Sequence[Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    config: str,
) -> str:
    """Return the page.

    Parameters
    ----------
    title, above
        Heading, and the line above it.
    tiles
        Name, value and note of each figure.
    pictures
        As `florets.reports.report.embedded` has them, with ``heading`` and ``note``.
    tables
        ``heading``, ``note`` and ``rows``, the first of which is the head.
    config
        Settings of the task.
    """
    # Names of clients and owners come from files: autoescape keeps them text.
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(_PAGE)
    return template.render(
        style=CSS, title=title, above=above, tiles=tiles, pictures=pictures, tables=tables, config=config
    )
