"""Florets: clustered federated learning as a Flower app.

The package consists of the folders `strategies`, `client_app`, `server_app`, `task`, `conf` and `deploy`. In an
installed wheel they lie inside this one. In the repository, and in the app bundle that Flower ships, beside it.
"""

from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent

if not (_HERE / "strategies").is_dir():
    __path__.append(str(_HERE.parent))


class _Apps:
    """The two apps as pyproject.toml names them to Flower, each imported when it is asked for.

    Named by their own modules, they failed now and then: to look for `florets.client_app.app`, one thread of a
    simulation uses this package while another is still importing it and has not come to its path.
    """

    @property
    def client(self) -> Any:
        from florets.client_app.app import app

        return app

    @property
    def server(self) -> Any:
        from florets.server_app.app import app

        return app


apps = _Apps()
