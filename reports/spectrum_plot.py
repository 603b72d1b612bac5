"""CFL-GP's spectral step as a picture: the clients' features, coloured by true cluster, and the singular values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from florets.reports.embedding import embedding
from florets.reports.look import GRID, INK, QUIET, STYLE, colour_of, marker_of
from florets.reports.picture import Picture
from florets.reports.summary import RoundLine, read_lines
from florets.strategies.base.report import SPECTRUM

_PANEL = 2.15
"""Inches of a panel's side."""


@dataclass(frozen=True)
class Spectrum:
    """What one round's clustering was made from.

    Attributes
    ----------
    features
        (M, s), of all clients that the round clustered.
    clusters
        True cluster of each, -1 where it is not known.
    singular_values
        Of the profile, falling.
    """

    server_round: int
    features: NDArray[np.float64]
    clusters: NDArray[np.int64]
    singular_values: Sequence[float]


def spectra_of(lines: Sequence[RoundLine], folder: Path) -> list[Spectrum]:
    """Return the spectra that a run has kept (`strategy.spectrum_rounds`), round by round.

    Parameters
    ----------
    folder
        The run's, with the features in ``embeddings.npz``.
    """
    found = []
    for line in lines:
        if SPECTRUM in line["details"]:
            kept = embedding(folder, line["round"])
            features = kept.vectors.astype(np.float64)
            found.append(Spectrum(line["round"], features, kept.true_labels, line["details"][SPECTRUM]))
    return found


def read_spectra(folder: Path) -> list[Spectrum]:
    """Return the spectra that a run's folder holds; none where the run has kept none."""
    lines = read_lines(folder)
    return spectra_of(lines, folder)


def in_a_plane(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where the features (M, s) are drawn, (M, 2): their first three principal components, seen obliquely.

    The first is to the right, the second up, the third half as long and up to the right. The entry of largest size
    of each is positive; where features differ in fewer directions, the others are 0.
    """
    centred = features - features.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    # Directions in which features differ by rounding alone are none.
    found = np.where(values > 1e-12 * max(1.0, float(np.abs(features).max())), left * values, 0.0)[:, :3]
    found = np.pad(found, ((0, 0), (0, 3 - found.shape[1])))
    largest = np.take_along_axis(found, np.abs(found).argmax(axis=0)[np.newaxis], axis=0)
    found = found * np.where(largest < 0, -1.0, 1.0)
    places: NDArray[np.float64] = found[:, :2] + 0.5 * found[:, 2:] * np.sqrt(0.5)
    return places


def draw_spectra(spectra: Sequence[Spectrum], path: Path) -> bool:
    """Draw a run's features, a panel a round, and beneath them the singular values; False where there are none."""
    if not spectra:
        return False
    with rc_context(STYLE):
        figure = _figure(max(_PANEL * len(spectra), 6.0), _PANEL + 3.0)
        above, below = figure.subfigures(2, 1, height_ratios=(_PANEL + 0.5, 2.5), squeeze=False)[:, 0]
        panels = above.subplots(1, len(spectra), squeeze=False)[0]
        for axes, spectrum in zip(panels, spectra, strict=True):
            _scatter(axes, spectrum)
            axes.set_title(f"round {spectrum.server_round}", fontsize=10, pad=4)
        _legend(above, spectra)
        (axes,) = below.subplots(1, 1, squeeze=False)[0]
        _lines(axes, spectra)
        axes.set_title("Singular values")
        figure.save(path)
    return True


def draw_feature_grid(rows: Mapping[str, Sequence[Spectrum]], path: Path) -> bool:
    """Draw features of several runs, a line of panels each, one for each round; False where there are none.

    Parameters
    ----------
    rows
        A run's spectra by what stands beside its panels.
    """
    shown = {label: spectra for label, spectra in rows.items() if spectra}
    if not shown:
        return False
    rounds = sorted({spectrum.server_round for spectra in shown.values() for spectrum in spectra})
    with rc_context(STYLE):
        figure = _figure(_PANEL * len(rounds) + 0.9, _PANEL * len(shown) + 0.8)
        panels = figure.subplots(len(shown), len(rounds), squeeze=False)
        for line, (label, spectra) in zip(panels, shown.items(), strict=True):
            at = {spectrum.server_round: spectrum for spectrum in spectra}
            for axes, number in zip(line, rounds, strict=True):
                if number in at:
                    _scatter(axes, at[number])
                else:
                    _empty(axes, "clustering\nhad stopped")
            line[0].set_ylabel(label, color=INK, fontsize=9.5, labelpad=6)
        for axes, number in zip(panels[0], rounds, strict=True):
            axes.set_title(f"round {number}", fontsize=10, pad=4)
        _legend(figure, [spectrum for spectra in shown.values() for spectrum in spectra])
        figure.save(path)
    return True


def draw_singular_values(rows: Mapping[str, Sequence[Spectrum]], path: Path) -> bool:
    """Draw the singular values of several runs, a panel each, a line a round; False where there are none."""
    shown = {label: spectra for label, spectra in rows.items() if spectra}
    if not shown:
        return False
    across = 2 if len(shown) > 1 else 1
    down = -(-len(shown) // across)
    with rc_context(STYLE):
        figure = _figure(4.4 * across, 0.3 + 2.6 * down)
        panels = figure.subplots(down, across, squeeze=False).reshape(-1)
        for axes, (label, spectra) in zip(panels, shown.items(), strict=False):
            _lines(axes, spectra)
            axes.set_title(label)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        figure.save(path)
    return True


def _figure(width: float, height: float) -> Picture:
    figure = Picture(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.07))
    FigureCanvasAgg(figure)
    return figure


def _scatter(axes: Axes, spectrum: Spectrum) -> None:
    """Draw each client where `in_a_plane` has its features; both axes have the panel's own, equal scale."""
    places = in_a_plane(spectrum.features)
    for cluster in np.unique(spectrum.clusters):
        colour, marker = colour_of(int(cluster)), marker_of(int(cluster))
        x, y = places[spectrum.clusters == cluster].T
        axes.scatter(x, y, s=22, color=colour, marker=marker, alpha=0.65, linewidth=0.4, edgecolor="white")
    low, high = places.min(axis=0), places.max(axis=0)
    # Room for the marks; where all features are equal any will do.
    reach = 0.62 * max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - reach, middle[0] + reach)
    axes.set_ylim(middle[1] - reach, middle[1] + reach)
    _frame(axes)


def _empty(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", color=QUIET, fontsize=9, transform=axes.transAxes)
    _frame(axes)


def _frame(axes: Axes) -> None:
    """Frame a panel whose scale says nothing."""
    axes.set_box_aspect(1)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(GRID)


def _legend(figure: Picture, spectra: Sequence[Spectrum]) -> None:
    clusters = sorted({int(cluster) for spectrum in spectra for cluster in spectrum.clusters})
    names = ["not known" if cluster < 0 else str(cluster) for cluster in clusters]
    marks = [
        Line2D([], [], linestyle="", marker=marker_of(cluster), color=colour_of(cluster), markersize=5.5)
        for cluster in clusters
    ]
    figure.legend(
        [Line2D([], [], linestyle=""), *marks],
        ["true cluster", *names],
        loc="outside lower center",
        ncols=min(len(marks) + 1, 9),
        frameon=False,
        handletextpad=0.1,
        columnspacing=1.1,
        fontsize=9,
    )


def _lines(axes: Axes, spectra: Sequence[Spectrum]) -> None:
    """Draw each round's singular values in falling order, later rounds in a deeper red."""
    shades = colormaps["Reds"](np.linspace(0.35, 1.0, len(spectra)))
    for spectrum, shade in zip(spectra, shades, strict=True):
        values = spectrum.singular_values
        axes.plot(
            range(1, len(values) + 1),
            values,
            color=shade,
            marker="o",
            markersize=3.2,
            linewidth=1.5,
            label=f"round {spectrum.server_round}",
        )
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_ylim(bottom=0)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set_xlabel("number of the singular value")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=QUIET)
