"""A figure that a notebook shows, and that is saved as PNG, PDF and SVG."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without dates and versions in it, equal results leave equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}


class Picture:
    """A figure.

    Attributes
    ----------
    figure
        The figure of matplotlib, for whatever else is to be done with it.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> list[Path]:
        """Write the figure and return its files.

        Parameters
        ----------
        path
            With a suffix that matplotlib knows, the one file; else PNG (160 dots per inch), PDF and SVG of that name.
        """
        path = Path(path)
        known = path.suffix.lower().removeprefix(".") in self.figure.canvas.get_supported_filetypes()
        paths = [path] if known else [path.with_name(path.name + suffix) for suffix in _METADATA]
        for one in paths:
            self._write(one)
        return paths

    def _write(self, target: Path | io.BytesIO, suffix: str = "") -> None:
        from matplotlib import rc_context

        suffix = suffix or (target.suffix.lower() if isinstance(target, Path) else "")
        with warnings.catch_warnings(), rc_context({"svg.hashsalt": "florets"}):
            # A client may be called by letters that no font of ours has: they are drawn as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            metadata = _METADATA.get(suffix)
            self.figure.savefig(target, dpi=160, format=suffix.removeprefix(".") or None, metadata=metadata)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, ".png")
        return buffer.getvalue()
