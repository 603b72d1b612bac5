"""Pages of results in a notebook, in a browser, or as text on a screen."""

import html
import sys
import webbrowser
from pathlib import Path
from typing import Any

_HEIGHT = 820
"""Pixels of a page within a notebook."""


def in_notebook() -> bool:
    """Return whether this is a notebook, which displays HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def framed(page: Path) -> str:
    """Return a page as HTML within another one, whose style it does not take."""
    source = html.escape(page.read_text(encoding="utf-8"))
    return f'<iframe srcdoc="{source}" style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'


def show(result: Any, page: Path, text: str) -> None:
    """Display a result in a notebook; elsewhere print its text and, on a terminal, open its page in the browser."""
    if in_notebook():
        from IPython import display

        # IPython is not typed.
        display.display(result)  # type: ignore[no-untyped-call]
        return
    print(text)
    if sys.stdout.isatty():
        webbrowser.open(page.as_uri())
