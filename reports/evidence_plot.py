"""The evidence of a discovery as a picture: score over the number of groups, and similarity of the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from florets.reports.heatmap import short
from florets.reports.look import COLOURS, GRID, INK, QUIET, STYLE, shown_figure
from florets.reports.picture import Picture

_MOST_NAMES = 25


def draw_evidence(evidence: Mapping[str, Any], path: Path) -> bool:
    """Draw the evidence of a round that looked for groups; return False where it has no scores.

    Parameters
    ----------
    evidence : mapping
        The round's detail: `verdict`, `k`, `p_value`, `candidates`, `scores`, `clients`, `groups`, `similarity`; see
        `florets.strategies.shared.evidence`.
    """
    if not evidence["scores"] or not evidence["similarity"]:
        return False
    evidence_figure(evidence).save(path)
    return True


def evidence_figure(evidence: Mapping[str, Any]) -> Picture:
    """Return the evidence of a round that looked for groups, and has scores, as a figure."""
    with rc_context(STYLE):
        figure = shown_figure(8.4, 3.9)
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _scores(left, evidence)
        _similarity(figure, right, evidence)
    return figure


def _scores(axes: Axes, evidence: Mapping[str, Any]) -> None:
    candidates, scores = evidence["candidates"], evidence["scores"]
    axes.plot(candidates, scores, color=COLOURS[0], linewidth=1.9, marker="o" if len(scores) <= 30 else None, ms=3.6)
    chosen = evidence["k"]
    if evidence["verdict"] == "groups" and chosen in candidates:
        height = scores[candidates.index(chosen)]
        axes.plot([chosen], [height], "o", ms=9, mfc="none", mec=COLOURS[1], mew=2)
        axes.annotate(
            f"K = {chosen}",
            (chosen, height),
            xytext=(9, 5),
            textcoords="offset points",
            color=COLOURS[1],
            fontweight="bold",
        )
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_ylim(min(-0.05, *scores) - 0.03, max(0.1, *scores) * 1.18)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    p_value = evidence["p_value"]
    axes.set_title("Score" if p_value is None else f"Score (p = {p_value:.2g})")
    axes.set_xlabel("number of groups K")


def _similarity(figure: Picture, axes: Axes, evidence: Mapping[str, Any]) -> None:
    similarity = np.array(evidence["similarity"], dtype=np.float64)
    clients: Sequence[str] = evidence["clients"]
    # A client is always like itself: the diagonal would set the scale.
    off = similarity[~np.eye(len(similarity), dtype=bool)]
    low, high = min(0.0, float(off.min(initial=0.0))), max(0.05, float(off.max(initial=0.0)))
    # From light to dark, so that it can be read in grey as well.
    image = axes.imshow(similarity, cmap="Blues", vmin=low, vmax=high, interpolation="nearest")
    groups = np.array(evidence["groups"])
    for edge in np.flatnonzero(np.diff(groups)) + 0.5:
        axes.axhline(edge, color=INK, linewidth=1.2)
        axes.axvline(edge, color=INK, linewidth=1.2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    names = _shortened(clients) if len(clients) <= _MOST_NAMES else []
    axes.set_yticks(range(len(names)), names, fontsize=max(5.5, 8.5 - 0.1 * len(names)))
    axes.set_xticks([])
    axes.set_title("Similarity of clients")
    bar = figure.colorbar(image, ax=axes, pad=0.03, aspect=22, shrink=0.85)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=QUIET)


def _shortened(names: Sequence[str]) -> list[str]:
    """Return names of at most 18 letters, without their beginnings where these are all that would be left."""
    found = [short(name, 18) for name in names]
    if len(set(found)) == len(set(names)):
        return found
    return [short(name if len(name) <= 18 else f"…{name[-17:].lstrip()}", 18) for name in names]
