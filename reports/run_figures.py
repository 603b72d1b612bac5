"""Figures of runs and sweeps: curves over rounds, losses, evidence for groups, and the vectors that are clustered."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from florets.reports import figures
from florets.reports.clients import ClientRow
from florets.reports.console import counted
from florets.reports.embedding import embedding, principal_components
from florets.reports.quantities import QUANTITIES, Quantity, known_quantities
from florets.reports.summary import Curve, Curves, Figure, RoundLine, covers_all, read_lines
from florets.strategies.base.report import FIRST_PHASE, SPECTRUM

Runs = Sequence[Sequence[Curves]]

# Curves over the rounds


def run_figure(lines: Sequence[RoundLine]) -> figures.Picture | None:
    """Return a run's ARI and accuracy (or loss) over its rounds; None where nothing is known.

    The band is one standard deviation over clients; vertical lines mark a frozen clustering, the end of a first phase
    and the first change of clients' data.
    """
    panels = {key: _panel(lines, key) for key in known_quantities([lines])}
    if not panels:
        return None
    picture, rows = _panels(panels, 0.5, 2.5, "clients")
    last = lines[-1]["round"]
    for axes in rows:
        axes.set_xlim(0.5, max(last + 0.25, 1.5))
    stable = next((line["round"] for line in lines if line["stable"]), None)
    first = sum(line["phase"] == FIRST_PHASE for line in lines)
    with figures.styled():
        if stable is not None:
            figures.mark(rows, stable, f"stable from round {stable}", last)
        if 0 < first < last:
            figures.mark(rows, first + 0.5, "end of phase 1", last)
        if changed := next((line for line in lines if line["data_changed"]), None):
            words = f"data of {counted(changed['data_changed'], 'client')} change"
            figures.mark(rows, changed["round"], words, last, height=0.16)
    return picture


def sweep_figure(
    curves: Mapping[str, Runs], title: str = "", quantities: Sequence[Curve] = ()
) -> figures.Picture | None:
    """Return a figure of, for each name, the mean over its runs with a band of one standard deviation.

    None where nothing is known. A run that ended early counts in its own rounds only. Each of the `quantities`
    has a panel; where none is given, those that say most.
    """
    runs_of_all = [run for runs in curves.values() for run in runs]
    panels = {}
    for key in known_quantities(runs_of_all, quantities):
        quantity = QUANTITIES.get(key, Quantity(key))
        lines = [
            replace(line, label=f"{name}: {quantity.text(line.y[-1])}", style=figures.line_style(number))
            for number, (name, runs) in enumerate(curves.items())
            if len((line := mean_line(runs, key)).x)
        ]
        panels[key] = lines
    if not panels:
        return None
    picture, rows = _panels(panels, 0.7, 2.8, "seeds")
    for axes, lines in zip(rows, panels.values(), strict=True):
        axes.set_xlim(0.5, max(1.5, *(float(line.x[-1]) + 0.25 for line in lines)))
    if title:
        picture.suptitle(title, x=0.01, ha="left", color=figures.QUIET)
    return picture


@figures.styled()
def _panels(
    panels: Mapping[Curve, Sequence[figures.Line]], above: float, each: float, over: str
) -> tuple[figures.Picture, list[Axes]]:
    """Return a figure with a panel for each quantity; `over` says what bands are the spread over."""
    picture, rows = figures.stacked(8.4, above + each * len(panels), len(panels))
    for axes, (key, lines) in zip(rows, panels.items(), strict=True):
        quantity = QUANTITIES.get(key, Quantity(key))
        for line in lines:
            figures.draw_line(axes, line, quantity.at_most)
        figures.tidy(axes)
        figures.count_in(axes.xaxis)
        figures.set_limits(axes, quantity.form, lines)
        axes.set_title(quantity.title)
        figures.name_lines(axes, lines)
    band = any(axes.collections for axes in rows)
    rows[-1].set_xlabel(f"round (band: ± std over {over})" if band else "round")
    return picture, rows


def _panel(lines: Sequence[RoundLine], key: Curve) -> list[figures.Line]:
    """Return the lines of a quantity: its own, above that which it is compared with.

    The ARI over all clients is compared with that over the participants, where it differs; a test result with that of
    the fine-tuned copies.
    """
    quantity = QUANTITIES[key]
    own, text = run_line(lines, key, quantity.spread), quantity.text
    end = text(float(own.y[-1]))
    other = run_line(lines if quantity.compared else (), quantity.compared or key)
    names = ("as trained", "fine-tuned")
    if key == "ari":
        names = ("all clients" if covers_all(lines[-1]) else "clients so far", "participants")
    if not len(other.x) or (key == "ari" and np.array_equal(other.y, own.y)):
        return [replace(own, label=end)]
    thin = {"color": figures.COLOURS[1], "linewidth": 1.0, "alpha": 0.75, "zorder": 1.5}
    return [
        replace(own, label=f"{names[0]} {end}"),
        replace(other, label=f"{names[1]} {text(float(other.y[-1]))}", style=thin),
    ]


def run_line(lines: Sequence[RoundLine], key: Figure, spread: Figure | None = None) -> figures.Line:
    """Return a quantity over the rounds in which it is known."""
    rounds, values, spreads = list[int](), list[float](), list[float]()
    for line in lines:
        if (value := line[key]) is not None:
            rounds.append(line["round"])
            values.append(value)
            spreads.append(0.0 if spread is None else line[spread] or 0.0)
    return figures.Line(np.array(rounds), np.array(values), None if spread is None else np.array(spreads))


def mean_line(runs: Runs, key: Curve) -> figures.Line:
    """Return mean and sample standard deviation over runs, in each round in which some run has a value."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for line in run:
            if (value := line[key]) is not None:
                values.setdefault(line["round"], []).append(value)
    rounds = sorted(values)
    # A single run has no spread.
    std = [np.std(values[r], ddof=1) if len(values[r]) > 1 else 0.0 for r in rounds]
    mean = np.array([np.mean(values[r]) for r in rounds], dtype=np.float64)
    least = np.array([np.min(values[r]) for r in rounds], dtype=np.float64)
    return figures.Line(np.array(rounds, dtype=np.int64), mean, np.array(std, dtype=np.float64), least=least)


# Losses of all models on all clients


_MOST_NAMES = 60
"""With more clients than this their names would be too small to read; the groups' names stay."""


@figures.styled()
def losses_figure(
    keys: Sequence[str], losses: NDArray[np.float64], truth: Mapping[str, int], assignment: Mapping[str, int]
) -> figures.Picture | None:
    """Return a heat map of the losses (M, K) of all models on the clients, a dot at each client's own model.

    Rows are sorted by true cluster, then by model, then by key, what is not known last. None without losses.
    """
    if not losses.size:
        return None
    num_models = losses.shape[1]
    last = len(keys) + max([0, *truth.values(), *assignment.values()])
    sorting = [(truth.get(key, last), assignment.get(key, last), key) for key in keys]
    order = sorted(range(len(keys)), key=sorting.__getitem__)
    of_rows = [keys[row] for row in order]
    are_named = len(keys) <= _MOST_NAMES
    row_height = min(0.24, 9.0 / len(keys)) if are_named else 7.5 / len(keys)
    fonts, names = min(8.5, row_height * 72 * 0.62), [*map(figures.short, of_rows)] if are_named else []
    height = max(2.4, 1.3 + row_height * len(keys))
    picture, (axes,) = figures.stacked(max(5.4, 2.9 + min(0.95, max(0.3, 6.0 / num_models)) * num_models), height)
    # Dark where a model fits: what belongs together stands out from a pale ground.
    look: dict[str, Any] = {"fonts": fonts, "norm": figures.colour_scale(losses), "cmap": "YlGnBu_r"}
    image = figures.heat_map(axes, losses[order], names, [*map(str, range(num_models))], **look)
    # A letter is about 0.6 of its height wide; measuring the names would take a drawing of the whole.
    room = 0.6 * fonts * max(map(len, names), default=0) + 4 * are_named
    figures.name_groups(axes, [f"cluster {truth[key]}" if key in truth else None for key in of_rows], room + 10)
    for edge in np.arange(0.5, num_models - 1):
        axes.axvline(edge, color="white", linewidth=1.2)
    own = np.array([(assignment[key], row) for row, key in enumerate(of_rows) if key in assignment]).reshape(-1, 2).T
    if are_named:
        size = min(26.0, (row_height * 72 * 0.55) ** 2)
        axes.scatter(own[0], own[1], s=size, facecolor="white", edgecolor=figures.INK, linewidth=0.7)
    else:
        # Dots would run into each other. A light line in a dark outline is seen on both ends of the scale.
        for colour, width in ((figures.INK, 3.4), (figures.COLOURS[1], 2.0)):
            axes.vlines(own[0], own[1] - 0.5, own[1] + 0.5, color=colour, linewidth=width)
    axes.set_xlabel(f"model (a {'dot' if are_named else 'line'}: the client's own)")
    figures.colour_bar(picture, axes, image, min(0.95 * (height - 1.3), 3.4), "mean training loss")
    axes.set_title("Loss of every model on every client")
    return picture


def losses_of(folder: Path, clients: Sequence[ClientRow]) -> figures.Picture | None:
    """Return `losses_figure` of a run's folder, None where it has no losses of all models on all clients."""
    if not (path := folder / "loss_matrix.csv").is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    keys, losses, truth = list[str](), list[list[str]](), dict[str, int]()
    for key, cluster, *values in rows:
        keys.append(key)
        losses.append(values)
        if cluster:
            truth[key] = int(cluster)
    found = {row.client: row.found_cluster for row in clients if row.found_cluster is not None}
    return losses_figure(keys, np.array(losses, dtype=np.float64), truth, found)


# Evidence for groups


@figures.styled()
def evidence_figure(evidence: Mapping[str, Any]) -> figures.Picture:
    """Return the score over the number of groups, and the similarity of the clients.

    `evidence` is the detail of a round that tested for groups, with scores: see `strategies.shared.fold_evidence`.
    """
    picture = figures.new_picture(8.4, 3.9)
    left, right = picture.subplots(1, 2, width_ratios=(1.15, 1))
    _scores(left, evidence)
    similarity = np.array(evidence["similarity"], dtype=np.float64)
    # A client is always like itself: the diagonal would set the scale.
    off = similarity[~np.eye(len(similarity), dtype=bool)]
    scale = Normalize(min(0.0, float(off.min(initial=0.0))), max(0.05, float(off.max(initial=0.0))))
    names = [figures.short(name, 18) for name in evidence["clients"]] if len(similarity) <= 25 else []
    fonts = max(5.5, 8.5 - 0.1 * len(names))
    image = figures.heat_map(right, similarity, names, (), fonts=fonts, norm=scale, cmap="Blues", aspect="equal")
    for edge in np.flatnonzero(np.diff(evidence["groups"])) + 0.5:
        right.axhline(edge, color=figures.INK, linewidth=1.2)
        right.axvline(edge, color=figures.INK, linewidth=1.2)
    right.set_title("Similarity of clients")
    figures.colour_bar(picture, right, image, 2.4)
    return picture


def _scores(axes: Axes, evidence: Mapping[str, Any]) -> None:
    scores = np.array(evidence["scores"], dtype=np.float64)
    candidates = np.arange(2, len(scores) + 2)
    figures.draw_line(axes, figures.Line(candidates, scores))
    if evidence["verdict"] == "groups" and evidence["k"] in candidates:
        at = (evidence["k"], float(scores[candidates == evidence["k"]][0]))
        axes.plot(*at, "o", ms=9, mfc="none", mec=figures.COLOURS[1], mew=2)
        style: dict[str, Any] = {"textcoords": "offset points", "color": figures.COLOURS[1], "fontweight": "bold"}
        axes.annotate(f"K = {evidence['k']}", at, xytext=(9, 5), **style)
    axes.axhline(0, color=figures.QUIET, linewidth=0.8)
    axes.set_ylim(min(-0.05, *scores) - 0.03, max(0.1, *scores) * 1.18)
    figures.tidy(axes)
    figures.count_in(axes.xaxis)
    p_value = evidence["p_value"]
    axes.set_title("Score" if p_value is None else f"Score (p = {p_value:.2g})")
    axes.set_xlabel("number of groups K")


# What CFL-GP clusters


@dataclass(frozen=True)
class Spectrum:
    """What one round of CFL-GP clustered."""

    server_round: int
    features: NDArray[np.float64]
    """(M, s)"""
    clusters: NDArray[np.int64]
    """True cluster of each client, -1 where it is not known."""
    singular_values: Sequence[float]
    """Of the profile, falling."""


def spectra_of(folder: Path) -> list[Spectrum]:
    """Return the spectra that a run's folder holds (`strategy.spectrum_rounds`), round by round."""
    kept = []
    for line in read_lines(folder):
        if SPECTRUM in line["details"]:
            of = embedding(folder, line["round"])
            features = of.vectors.astype(np.float64)
            kept.append(Spectrum(line["round"], features, of.true_labels, line["details"][SPECTRUM]))
    return kept


def in_a_plane(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where the features (M, s) are drawn, (M, 2): their first three principal components, seen obliquely.

    The first is to the right, the second up, the third half as long and up to the right.
    """
    found = principal_components(features, 3)[0]
    places: NDArray[np.float64] = found[:, :2] + 0.5 * found[:, 2:] * np.sqrt(0.5)
    return places


_PANEL = 2.15
"""Inches of the side of a panel of features."""


@figures.styled()
def features_figure(rows: Mapping[str, Sequence[Spectrum]]) -> figures.Picture | None:
    """Return features of several runs by name, a row of panels for each, one for each round; None without any."""
    shown = {label: spectra for label, spectra in rows.items() if spectra}
    rounds = sorted({spectrum.server_round for spectra in shown.values() for spectrum in spectra})
    if not shown:
        return None
    picture = figures.new_picture(_PANEL * len(rounds) + 0.9, _PANEL * len(shown) + 0.8)
    panels = picture.subplots(len(shown), len(rounds), squeeze=False)
    for line, (label, spectra) in zip(panels, shown.items(), strict=True):
        at = {spectrum.server_round: spectrum for spectrum in spectra}
        for axes, number in zip(line, rounds, strict=True):
            if number in at:
                _features(axes, at[number])
            else:
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": figures.QUIET, "fontsize": 9}
                axes.text(0.5, 0.5, "clustering\nhad stopped", transform=axes.transAxes, **style)
                figures.frame(axes)
        line[0].set_ylabel(label, color=figures.INK, fontsize=9.5, labelpad=6)
    for axes, number in zip(panels[0], rounds, strict=True):
        axes.set_title(f"round {number}", fontsize=10, pad=4)
    _name_clusters(picture, [spectrum for spectra in shown.values() for spectrum in spectra])
    return picture


@figures.styled()
def singular_values_figure(rows: Mapping[str, Sequence[Spectrum]]) -> figures.Picture | None:
    """Return the singular values of several runs, a panel for each, a line for each round; None without any."""
    shown = {label: spectra for label, spectra in rows.items() if spectra}
    if not shown:
        return None
    across = 2 if len(shown) > 1 else 1
    down = -(-len(shown) // across)
    picture = figures.new_picture(4.4 * across, 0.3 + 2.6 * down)
    panels = picture.subplots(down, across, squeeze=False).reshape(-1)
    for axes, (label, spectra) in zip(panels, shown.items(), strict=False):
        _singular_values(axes, spectra)
        axes.set_title(label)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    return picture


def _features(axes: Axes, spectrum: Spectrum) -> None:
    """Draw each client where `in_a_plane` has its features; both axes have the panel's own, equal scale."""
    places = in_a_plane(spectrum.features)
    figures.draw_points(axes, places, spectrum.clusters, spectrum.clusters, area=22)
    low, high = places.min(axis=0), places.max(axis=0)
    # Room for the marks; where all features are equal any will do.
    reach = 0.62 * max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - reach, middle[0] + reach)
    axes.set_ylim(middle[1] - reach, middle[1] + reach)
    figures.frame(axes)


def _name_clusters(figure: Any, spectra: Iterable[Spectrum]) -> None:
    clusters = sorted({int(cluster) for spectrum in spectra for cluster in spectrum.clusters})
    options = {"loc": "outside lower center", "handletextpad": 0.1, "columnspacing": 1.1, "fontsize": 9}
    figures.name_marks(figure, clusters, None, title="true cluster", ncols=min(len(clusters) + 1, 9), **options)


def _singular_values(axes: Axes, spectra: Sequence[Spectrum]) -> None:
    """Draw each round's singular values in falling order, later rounds in a deeper red."""
    for spectrum, shade in zip(spectra, colormaps["Reds"](np.linspace(0.35, 1.0, len(spectra))), strict=True):
        values = np.array(spectrum.singular_values)
        label = f"round {spectrum.server_round}"
        style = {"color": shade, "marker": "o", "markersize": 3.2, "linewidth": 1.5, "label": label}
        figures.draw_line(axes, figures.Line(np.arange(1, len(values) + 1), values, style=style))
    figures.tidy(axes)
    figures.count_in(axes.xaxis)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("number of the singular value")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=figures.QUIET)
