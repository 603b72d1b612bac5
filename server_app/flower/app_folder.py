"""The app's description (pyproject.toml), and the folder of it alone that `florets engine=flwr` hands to Flower."""

import shutil
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
"""Folder with the app's pyproject.toml: the repository, or the installed package, whose wheel carries a copy."""


def write_app(folder: Path) -> Path:
    """Make a folder that `flwr run` takes as the app, and return it.

    It holds no code: every process on this machine imports the package that this one has imported.
    """
    folder.mkdir()
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


def version() -> str:
    """Return the version of this copy of the package."""
    # Costs time that only this needs.
    import tomllib

    described = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(described["project"]["version"])
