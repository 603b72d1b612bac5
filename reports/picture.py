"""A figure that a notebook shows, and that is saved as PNG, PDF and SVG."""

import io
import warnings
from pathlib import Path
from typing import Any

# Whoever draws imports this module inside a function: matplotlib costs a second.
from matplotlib import rc_context
from matplotlib.figure import Figure

from florets.conf.problems import ConfigError

# Without dates and versions in it, equal results leave equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}


class Picture(Figure):
    """A figure of matplotlib without pyplot, whose global state is not made for threads."""

    def save(self, path: str | Path) -> list[Path]:
        """Write the figure and return its files.

        Parameters
        ----------
        path
            With a suffix that matplotlib knows, the one file; else PNG (160 dots per inch), PDF and SVG of that name.

        Raises
        ------
        ConfigError
            If its folder does not exist.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise ConfigError([f"{path}: there is no folder {path.parent}; make it, or name another."])
        known = path.suffix.lower().removeprefix(".") in self.canvas.get_supported_filetypes()
        paths = [path] if known else [path.with_name(path.name + suffix) for suffix in _METADATA]
        for one in paths:
            self._write(one, one.suffix.lower(), 160)
        return paths

    def _write(self, target: Path | io.BytesIO, suffix: str, dots: int) -> None:
        with warnings.catch_warnings(), rc_context({"svg.hashsalt": "florets"}):
            # A client may be called by letters that no font of ours has: they are drawn as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            self.savefig(target, dpi=dots, format=suffix.removeprefix("."), metadata=_METADATA.get(suffix))

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, ".png", 110)
        return buffer.getvalue()
