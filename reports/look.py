"""Colours, markers and style of all figures, and figures that a notebook shows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from florets.reports.picture import Picture

# Okabe and Ito's palette, in an order that keeps neighbours apart for every kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "os^DvP*X"
# Together with the colour, so that lines can be distinguished in grey.
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)))
INK, QUIET, GRID = "#1F2933", "#66727F", "#E4E8EC"
# Any: the type that matplotlib 3.11 asks for, a union of all its setting names, is not in older releases.
STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": "#9AA5B1",
    "axes.labelcolor": QUIET,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def colour_of(group: int) -> str:
    """Return a group's colour; -1 stands for none."""
    return QUIET if group < 0 else COLOURS[group % len(COLOURS)]


def marker_of(group: int) -> str:
    """Return a group's marker; groups of one colour have different ones. -1 stands for none."""
    return "o" if group < 0 else MARKERS[(group + group // len(COLOURS)) % len(MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of the line with this number among others."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def shown_figure(width: float, height: float) -> "Picture":
    """Return a figure of that size in inches which a notebook shows where it is the value of a cell."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from florets.reports.picture import Picture

    return Picture(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
