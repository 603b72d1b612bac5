"""Figures: one style, and the kinds of panel that every figure consists of (lines, points, heat maps)."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

# Whoever draws imports this module inside a function: matplotlib costs a second.
from matplotlib import patheffects, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from florets.conf.problems import ConfigError
from florets.reports.folder import whole_file

# Okabe and Ito's palette, in an order that keeps neighbours apart for every kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "os^DvP*X"
# Together with the colour, so that lines can be distinguished in grey.
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)))
INK, QUIET, GRID = "#1F2933", "#66727F", "#E4E8EC"
_FALLBACKS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
)
"""Fonts of usual systems with Chinese, Japanese and Korean letters, which ours has not."""
# Any: the type that matplotlib 3.11 asks for, a union of all its setting names, is not in older releases.
_STYLE: Any = {
    "font.family": ["DejaVu Sans", *(name for name in _FALLBACKS if name in get_font_names())],
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
# Without dates and versions in it, equal results leave equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}


class Picture(Figure):
    """A figure of matplotlib that a notebook shows; without pyplot, whose global state is not made for threads."""

    def save(self, path: str | Path) -> list[Path]:
        """Write the figure and return its files: PNG, PDF and SVG, or the one that the suffix of `path` names."""
        path = Path(path)
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}; make it, or name another.")
        known = path.suffix.lower().removeprefix(".") in self.canvas.get_supported_filetypes()
        paths = [path] if known else [path.with_name(path.name + suffix) for suffix in _METADATA]
        for one in paths:
            with whole_file(one, "wb") as file:
                self._write(file, one.suffix.lower(), 160)
        return paths

    def _write(self, target: IO[bytes], suffix: str, dots: int) -> None:
        with warnings.catch_warnings(), rc_context({"svg.hashsalt": "florets"}):
            # Letters that no font has become boxes; long names in a small figure leave no room for the layout.
            warnings.filterwarnings("ignore", "Glyph .* missing from|constrained_layout not applied")
            self.savefig(target, dpi=dots, format=suffix.removeprefix("."), metadata=_METADATA.get(suffix))

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, ".png", 110)
        return buffer.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Give figures their style, within a block or as the decorator of a function that draws."""
    with rc_context(_STYLE):
        yield


def new_picture(width: float, height: float) -> Picture:
    """Return an empty figure of that size in inches."""
    return Picture(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.08))


def stacked(width: float, height: float, rows: int = 1) -> tuple[Picture, list[Axes]]:
    """Return a figure of that size in inches, and its panels over one common axis."""
    picture = new_picture(width, height)
    return picture, list(picture.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


# Looks of groups and of lines


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


# Axes


def tidy(axes: Axes, grid: str | None = "y") -> None:
    """Draw a quiet grid along these axes (x, y, both) behind the data, and no ticks; None: no frame either."""
    axes.tick_params(length=0, which="both")
    if grid is None:
        axes.spines[:].set_visible(False)
    else:
        axes.grid(axis=grid, color=GRID, linewidth=0.8)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def count_in(axis: Axis, ticks: int = 10) -> None:
    """Set ticks at integers."""
    axis.set_major_locator(MaxNLocator(nbins=ticks, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def frame(axes: Axes) -> None:
    """Frame a square panel whose scale means nothing."""
    axes.set_box_aspect(1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(GRID)


def mark(rows: Sequence[Axes], place: float, text: str, last: float, height: float = 0.04) -> None:
    """Draw a vertical line through panels whose axes end at `last`, and write in the first one what it means."""
    for axes in rows:
        axes.axvline(place, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    right = place < 0.55 * last
    rows[0].annotate(
        text,
        (place, height),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0) if right else (-5, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        color=QUIET,
        path_effects=_halo(),
    )


def _halo() -> list[patheffects.AbstractPathEffect]:
    """Return what keeps a text readable on top of lines."""
    return [patheffects.withStroke(linewidth=3, foreground="white")]


# Lines


@dataclass(frozen=True)
class Line:
    """A line of a panel, with a label and matplotlib's style; a value that is NaN is a gap."""

    x: NDArray[Any]
    y: NDArray[np.float64]
    spread: NDArray[np.float64] | None = None
    """Half the height of the band around each value; None: no band."""
    label: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)
    least: ArrayLike = 0.0
    """Lower end of the band: a spread larger than the mean would have none on a logarithmic axis."""


def draw_line(axes: Axes, line: Line, at_most: float | None = None) -> None:
    """Draw a line with its band, which ends at the greatest value that the quantity can have."""
    # One point alone would leave a line invisible; a few points deserve their marks.
    style: dict[str, Any] = {"linewidth": 1.9, "color": COLOURS[0], "markersize": 3.6}
    style["marker"] = "o" if len(line.x) <= 30 else None
    if "marker" in line.style and len(line.x) > 30:
        style["markevery"] = len(line.x) // 12
    style |= line.style
    if line.spread is not None and np.any(line.spread > 0):
        low, high = line.y - line.spread, line.y + line.spread
        if at_most is None:
            low = np.maximum(low, line.least)
        else:
            high = np.minimum(high, at_most)
        axes.fill_between(line.x, low, high, color=style["color"], alpha=0.14, linewidth=0)
    axes.plot(line.x, line.y, **style)


def set_limits(axes: Axes, form: str, lines: Sequence[Line]) -> None:
    """Set limits and ticks of the values' axis by its `quantities.Form`; a wide range gets a logarithmic one."""
    values = np.concatenate([line.y for line in lines])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if form == "index":
        axes.set_ylim(min(-0.06, low - 0.06), 1.06)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    elif form == "fraction":
        # From a tenth below the lowest band, so that 97 % and 99 % can be told apart, up to a full 100 %.
        bands = np.concatenate([line.y if line.spread is None else line.y - line.spread for line in lines])
        low = max(0.0, float(np.nanmin(bands)))
        low = max(0.0, low - 0.1 * (1 - low))
        axes.set_ylim(low, 1 + 0.04 * (1 - low) + 1e-3)
    elif form == "error":
        axes.set_ylim(0, 1.1 * high + 1e-3)
    elif low > 0 and high > 20 * low:
        axes.set_yscale("log")
        # A band may reach down to 0, which would push the curves together at the top.
        axes.set_ylim(bottom=low / 1.6)
    if form in ("fraction", "error"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def name_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Write the lines' labels into a legend to the right of the axes, in the order of their ends."""
    named = sorted((line for line in lines if line.label), key=lambda line: -line.y[np.isfinite(line.y)][-1])
    look: dict[str, Any] = {"linewidth": 1.9, "markersize": 5, "color": COLOURS[0]}
    axes.legend(
        handles=[Line2D([], [], **look | {**line.style}, label=line.label) for line in named],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        frameon=False,
        handlelength=3.2,
        borderaxespad=0.3,
        fontsize=9.5,
        labelcolor=INK,
    )


# Points


def draw_points(
    axes: Axes, places: NDArray[np.float64], colours: NDArray[np.int64], marks: NDArray[np.int64], area: float = 46
) -> None:
    """Draw points (M, 2) in the colour of one grouping (M,), with the marker of another (M,)."""
    for colour, marker in sorted(set(zip(colours.tolist(), marks.tolist(), strict=True))):
        x, y = places[(colours == colour) & (marks == marker)].T
        look: dict[str, Any] = {"color": colour_of(colour), "marker": marker_of(marker)}
        axes.scatter(x, y, s=area, alpha=0.7, linewidth=0.5, edgecolor="white", **look)


def name_points(axes: Axes, places: NDArray[np.float64], name: str) -> None:
    """Write the name of a group of points (M, 2) above the uppermost one."""
    x, y = places.T
    axes.annotate(
        name,
        (float(np.median(x)), float(y.max())),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=9.5,
        fontweight="bold",
        color=INK,
        path_effects=_halo(),
    )


def name_marks(figure: Any, groups: Iterable[int], colour: str | None, **options: Any) -> None:
    """Add a legend of the markers of groups, in one colour or in their own."""
    known = sorted(set(groups))
    marks = [
        Line2D([], [], ls="", marker=marker_of(one), color=colour or colour_of(one), markersize=6) for one in known
    ]
    names = ["not known" if one < 0 else str(one) for one in known]
    if "ncols" in options:
        # In a row the title comes first.
        marks, names = [Line2D([], [], ls=""), *marks], [options.pop("title"), *names]
    figure.legend(marks, names, frameon=False, **options)


# Heat maps


def short(name: str, longest: int = 16) -> str:
    """Return a client's name for a figure: cut where it is too long, and its dollars no formula to matplotlib."""
    cut = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return cut.replace("$", r"\$")


def heat_map(
    axes: Axes,
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    norm: Normalize,
    cmap: str,
    fonts: float,
    aspect: Literal["auto", "equal"] = "auto",
) -> AxesImage:
    """Draw a matrix in shades of one tone under its names, if any; what is not finite stays blank."""
    image = axes.imshow(np.ma.masked_invalid(values), cmap=cmap, norm=norm, aspect=aspect, interpolation="nearest")
    tidy(axes, None)
    axes.set_yticks(range(len(rows)), rows, fontsize=fonts)
    axes.set_xticks(range(len(columns)), columns)
    return image


def colour_bar(figure: Figure, axes: Axes, image: AxesImage, length: float, label: str = "") -> None:
    """Draw the bar of a heat map's colours, `length` inches long."""
    shrink = length / (figure.get_figheight() - 1.0)
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=length / 0.13, shrink=shrink)
    bar.outline.set_visible(False)
    if isinstance(image.norm, LogNorm):
        # With more than five ticks an inch they collide.
        decades = np.log10((image.norm.vmax or 1) / (image.norm.vmin or 1))
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if 3 * decades < 5 * length else (1,)))
        bar.ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(length=0, which="both", labelcolor=QUIET)
    bar.set_label(label)


def colour_scale(values: NDArray[np.float64]) -> Normalize:
    """Return a logarithmic scale where values differ much and are positive, else a linear one."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Normalize(0, 1)
    low, high = float(known.min()), float(known.max())
    if high <= low:
        return Normalize(low - 0.5, high + 0.5)
    return LogNorm(low, high) if low > 0 and high > 5 * low else Normalize(low, high)


def name_groups(axes: Axes, groups: Sequence[str | None], gap: float) -> None:
    """Set groups of a heat map's rows apart by white lines, and name each, `gap` points to the left of the axes."""
    start = 0
    for name, rows in groupby(groups):
        size = len(list(rows))
        if start:
            axes.axhline(start - 0.5, color="white", linewidth=2.5)
        if name is not None:
            axes.annotate(
                f"{name}\n{size} clients" if size > 2 else name,
                (0, start + (size - 1) / 2),
                xycoords=("axes fraction", "data"),
                xytext=(-gap, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=9.5 if size > 2 else 8,
                linespacing=1.35,
            )
        start += size
