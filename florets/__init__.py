"""Florets: clustered federated learning as a Flower app.

The package consists of the folders `strategies`, `client_app`, `server_app`, `task`, `conf` and `deploy`. In an
installed wheel they lie inside this one. In the repository, and in the app bundle that Flower ships, beside it.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent

if not (_HERE / "strategies").is_dir():
    __path__.append(str(_HERE.parent))
